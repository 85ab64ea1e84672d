"""Checks of the machine itself: root, systemd, clock, disk."""

from __future__ import annotations

import os
import time
from typing import Any

from .node import Finding, Node, failed, passed, warned
from .remedies import Remedy

MIB = 1024 * 1024
DISK_FAIL, DISK_WARN = 512 * MIB, 2048 * MIB
BOOT_FAIL, BOOT_WARN = 32 * MIB, 100 * MIB  # one kernel with its initramfs is about 100 MiB
INODES_FAIL, INODES_WARN = 1000, 20000


def root(_node: Node, _args: dict[str, Any]) -> Finding:
    """These checks run as root, so the way to root works."""
    user = os.geteuid()
    if user != 0:
        return failed("the login did not become root", f"effective user id {user}")
    return passed()


def systemd(node: Node, args: dict[str, Any]) -> Finding:
    """No failed unit. One that our roles manage is a failure; another's is a warning.

    Args:
        node: The node.
        args: ``units``: the units our roles manage.
    """
    state = node.run("systemctl", "is-system-running")
    failing = node.run("systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager", "--full")
    if not failing.ok:
        return failed("systemd does not answer", failing.words, Remedy.SYSTEMD_STATUS)
    units = [line.split()[0] for line in failing.out.splitlines() if line.strip()]
    ours = sorted(set(units) & set(args["units"]))
    if ours:
        log = "\n".join(journal(node, unit) for unit in ours[:3])
        return failed("failed: {}".format(", ".join(ours)), log, Remedy.APPLY)
    if units:
        return warned(
            "failed, but not managed by gpustrap: {}".format(", ".join(sorted(units)[:10])),
            "\n".join(journal(node, unit, lines=5) for unit in sorted(units)[:3]),
            Remedy.FAILED_UNITS,
        )
    word = state.out.strip()
    if word not in {"running", "degraded", "starting"}:  # degraded without a failed unit: it has recovered since
        return failed("systemd is {}".format(word or "in no known state"), state.words)
    if word == "starting":
        return warned("still starting", node.run("systemctl", "list-jobs", "--no-pager").words, Remedy.WAIT)
    return passed()


def journal(node: Node, unit: str, lines: int = 12) -> str:
    """The last lines of a unit's log, headed by its name."""
    log = node.run("journalctl", "-u", unit, "-n", str(lines), "--no-pager", "-o", "cat", timeout=10)
    return f"{unit}: {log.words}"


def unit_state(node: Node, unit: str) -> dict[str, str]:
    """Some properties of a unit; empty when systemd does not answer."""
    names = "LoadState,ActiveState,SubState,UnitFileState,ConditionResult"
    shown = node.run("systemctl", "show", unit, "--property=" + names)
    pairs = (line.partition("=") for line in shown.out.splitlines())
    return {key: value for key, _, value in pairs}


def clock(node: Node, args: dict[str, Any]) -> Finding:
    """The clock is near the controller's, and what keeps it there runs.

    A login takes a while, so a clock that is ahead is known less exactly than one that is behind.

    Args:
        node: The node.
        args: ``controller``: seconds since the epoch when the request was made; ``ahead``: seconds a login may
            take; ``service``: the unit that keeps time, or "".
    """
    ahead = time.time() - args["controller"]
    wrong = -ahead if ahead < 0 else max(0.0, ahead - args["ahead"])
    if wrong > 2:
        said = "{:.0f} s {} this machine's clock".format(wrong, "behind" if ahead < 0 else "ahead of")
        # Certificates and signed repositories stop working within minutes of difference.
        return failed(said, remedy=Remedy.SET_CLOCK) if wrong > 60 else warned(said, remedy=Remedy.SET_CLOCK)
    service = args["service"]
    if not service:
        return passed("nothing keeps the clock in sync; not asked for")
    state = unit_state(node, service)
    if state.get("ActiveState") == "active":
        return passed()
    if state.get("LoadState") == "loaded" and state.get("ConditionResult") == "no":
        return passed(f"{service} is not needed here by its own condition (a container)")
    if state.get("LoadState") == "not-found":
        return failed(f"{service} is not installed", remedy=Remedy.APPLY)
    found = "{} is {}".format(service, state.get("ActiveState") or "unknown")
    if state.get("LoadState") != "loaded":
        found = "{} is {}".format(service, state.get("LoadState") or "unknown")
    return failed(found, journal(node, service), Remedy.APPLY)


def disk(node: Node, args: dict[str, Any]) -> Finding:
    """Every filesystem that matters is writable and has bytes and inodes left.

    Args:
        node: The node.
        args: ``paths``: directories whose filesystems are looked at; one that does not exist counts as its parent.
    """
    problems, warnings, devices = [], [], set()
    for wanted in args["paths"]:
        path = node.path(wanted)
        while not path.exists():
            path = path.parent
        device = path.stat().st_dev
        if device in devices:
            continue
        devices.add(device)
        verdict, said = room(os.statvfs(str(path)), boot=wanted.startswith("/boot"))
        if verdict == "fail":
            problems.append(f"{wanted} {said}")
        elif verdict == "warn":
            warnings.append(f"{wanted} {said}")
    if not problems and not warnings:
        return passed()
    evidence = node.run("df", "-hP", *args["paths"]).words
    said = "; ".join(problems + warnings)
    return (failed if problems else warned)(said, evidence, Remedy.MAKE_ROOM)


def room(found: os.statvfs_result, *, boot: bool) -> tuple[str, str]:
    """What to say about a filesystem: (verdict, words)."""
    free = found.f_bavail * found.f_frsize
    least, enough = (BOOT_FAIL, BOOT_WARN) if boot else (DISK_FAIL, DISK_WARN)
    inodes = found.f_favail if found.f_files else INODES_WARN  # btrfs has no such limit and says 0
    if found.f_flag & os.ST_RDONLY:
        return "fail", "is mounted read-only"
    if free < enough:
        return ("fail" if free < least else "warn"), f"has {free // MIB} MiB left"
    if inodes < INODES_WARN:
        return ("fail" if inodes < INODES_FAIL else "warn"), f"has {inodes} inodes left"
    return "pass", ""
