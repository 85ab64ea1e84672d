"""What this node was last rebooted for: a note that survives the boot, so that no reboot is tried twice in vain."""

from __future__ import annotations

import json
import os
import subprocess
import time

from .host import Host, NodeError
from .ledger import DIRECTORY, store, trusted, writable_directory

FILE = DIRECTORY + "/reboots.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
STAGES = ("kernel", "driver", "mok", "removal")
DELAY = 2  # seconds between the answer and the reboot, so that the answer gets out


def history(host: Host) -> dict[str, dict[str, object]]:
    """By stage, what was last begun: its target, the boot it was begun in, and when. What cannot be read is empty."""
    try:
        found = json.loads(trusted(host, FILE) or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {stage: entry for stage, entry in found.items() if stage in STAGES and isinstance(entry, dict)}


def tried(host: Host, stage: str, target: str) -> bool:
    """Whether this node has booted since the same was begun: then that boot did not bring what it was for."""
    entry = history(host).get(stage, {})
    return entry.get("target") == target and entry.get("boot_id") != host.line(BOOT_ID)


def remember(host: Host, stage: str, target: str) -> None:
    """Write down what is begun now."""
    entry = {"target": target, "boot_id": host.line(BOOT_ID), "time": int(time.time())}
    _write(host, {**history(host), stage: entry})


def forget(host: Host, stage: str) -> bool:
    """It came as it should, so it may be tried again one day. Whether there was anything to forget."""
    entries = history(host)
    if stage not in entries:
        return False
    del entries[stage]
    _write(host, entries)
    return True


def _write(host: Host, entries: dict[str, dict[str, object]]) -> None:
    store(os.path.join(writable_directory(host), os.path.basename(FILE)), json.dumps(entries, sort_keys=True) + "\n")


def begin(host: Host, stage: str, target: str, why: str) -> None:
    """Note the reboot and start it; the answer goes out before the node goes down.

    Raises:
        NodeError: The node has booted for this once already.
    """
    if stage not in STAGES or not target:
        raise NodeError("bad-request", "a stage is one of %s, and its target is named" % ", ".join(STAGES))
    if tried(host, stage, target):
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(_seconds(history(host)[stage].get("time"))))
        raise NodeError("reboot-loop", "it was rebooted already at %s, for %s, and that did not help" % (when, target))
    remember(host, stage, target)
    if host.live:
        # Without -i: what holds a shutdown back, as a package manager at work does, has its reason.
        reboot = 'sleep %d; exec systemctl reboot --message="$0"' % DELAY
        subprocess.Popen(
            ["/bin/sh", "-c", reboot, "gpustrap: " + why],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
