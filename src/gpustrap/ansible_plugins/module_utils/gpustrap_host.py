"""A node's own name, time zone and units: what is, what would change, and the change. Standard library only."""

from __future__ import annotations

import difflib
import errno
import os
import re
import socket
import tempfile
from typing import Any, Callable, List, Sequence

MARK = "# gpustrap"


class HostError(Exception):
    """What was asked for cannot be done here."""


def read_text(path: str) -> str:
    """Content of a file; empty when there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def write_text(path: str, text: str) -> None:
    """Replace a file atomically, keeping its mode; in place where it is a mount (containers)."""
    mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o644
    handle, scratch = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".gpustrap-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(scratch, mode)
        os.rename(scratch, path)
    except OSError as error:
        os.unlink(scratch)
        if error.errno != errno.EBUSY:
            raise
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)


def replace_link(path: str, target: str) -> None:
    """Point a symbolic link elsewhere, atomically."""
    scratch = path + ".gpustrap"
    if os.path.lexists(scratch):
        os.unlink(scratch)
    os.symlink(target, scratch)
    os.rename(scratch, path)


# --- name ----------------------------------------------------------------------------------------------------------


def hosts_with(hosts: str, name: str) -> str:
    """``/etc/hosts`` in which ``name`` resolves: unchanged when any line names it, else with one line of ours.

    Without it every sudo waits for DNS. A line of ours for an older name is replaced; all others stay.
    """
    lines = [line for line in hosts.splitlines() if not line.rstrip().endswith(MARK) or name in line.split()]
    if any(name in line.partition("#")[0].split()[1:] for line in lines):
        return hosts if len(lines) == len(hosts.splitlines()) else "\n".join(lines) + "\n"
    short = name.partition(".")[0]
    names = name if short == name else "%s %s" % (name, short)
    return "\n".join([*lines, "127.0.1.1\t%s\t%s" % (names, MARK)]) + "\n"


def name_node(
    name: str,
    check_mode: bool,
    root: str = "/",
    get: Callable[[], str] = socket.gethostname,
    set_name: Callable[[str], None] = socket.sethostname,
) -> dict[str, Any]:
    """Set the host name (empty: keep it) and make it resolve; the module's result."""
    hostname_file, hosts_file = os.path.join(root, "etc/hostname"), os.path.join(root, "etc/hosts")
    before = {"hostname": read_text(hostname_file).strip(), "running": get(), "hosts": read_text(hosts_file)}
    after = dict(before)
    if name:
        after.update(hostname=name, running=name)
    after["hosts"] = hosts_with(before["hosts"], after["running"])
    if not check_mode:
        if after["hosts"] != before["hosts"]:
            write_text(hosts_file, after["hosts"])
        if after["hostname"] != before["hostname"]:
            write_text(hostname_file, after["hostname"] + "\n")
        if after["running"] != before["running"]:
            set_name(after["running"])
    return {
        "changed": before != after,
        "claims": [{"kind": "file", "name": "/etc/hostname"}] if name else [],
        "diff": {"before": report(before), "after": report(after)},
    }


def report(state: dict[str, str]) -> str:
    """Text for ``--diff``."""
    return "hostname: %(hostname)s\nrunning: %(running)s\n%(hosts)s" % state


# --- time zone -----------------------------------------------------------------------------------------------------


def zone_of(link: str) -> str:
    """``/usr/share/zoneinfo/Europe/Berlin`` -> ``Europe/Berlin``; empty when it is something else."""
    _before, found, zone = link.partition("zoneinfo/")
    return zone if found else ""


def set_timezone(name: str, check_mode: bool, root: str = "/") -> dict[str, Any]:
    """Point ``/etc/localtime`` at the zone; keep ``/etc/timezone`` in step where there is one."""
    zones, link = os.path.join(root, "usr/share/zoneinfo"), os.path.join(root, "etc/localtime")
    text_file = os.path.join(root, "etc/timezone")
    have_data = os.path.isdir(zones) and len(os.listdir(zones)) > 1
    if not have_data and not check_mode:
        raise HostError("no time zones on this node; add tzdata to the packages")
    if have_data and not os.path.isfile(os.path.join(zones, name)):
        raise HostError("there is no time zone %s%s" % (name, suggestion(name, zones)))
    before = zone_of(os.readlink(link)) if os.path.islink(link) else ""
    text = read_text(text_file).strip()
    changed = before != name or (bool(text) and text != name)
    if changed and not check_mode:
        replace_link(link, "/usr/share/zoneinfo/" + name)
        if text:
            write_text(text_file, name + "\n")
    return {
        "changed": changed,
        "claims": [{"kind": "link", "name": "/etc/localtime"}],
        "diff": {"before": before + "\n", "after": name + "\n"},
    }


def suggestion(name: str, zones: str) -> str:
    """A near miss, as ``; did you mean X?``, or nothing."""
    known: List[str] = []
    for directory, _directories, files in os.walk(zones):
        known.extend(os.path.relpath(os.path.join(directory, file), zones) for file in files)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return "; did you mean %s?" % near[0] if near else ""


# --- units ---------------------------------------------------------------------------------------------------------

Systemctl = Callable[[Sequence[str]], "tuple[int, str]"]
PROPERTIES = "LoadState,UnitFileState,ActiveState,ConditionResult,ConditionTimestampMonotonic,FragmentPath"


def parse_properties(text: str) -> dict[str, str]:
    """``systemctl show`` -> property -> value."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def conditions(unit_text: str) -> list[str]:
    """The ``Condition…=`` lines of ``systemctl cat``: what may hold a unit back."""
    return re.findall(r"^Condition\w+=.+$", unit_text, re.MULTILINE)


def run_unit(name: str, systemctl: Systemctl, check_mode: bool) -> dict[str, Any]:
    """Have a unit enabled and running, unless systemd's own conditions hold it back (time sync in a container).

    Args:
        name: The unit.
        systemctl: Function from argv to ``(exit status, output)``.
        check_mode: Change nothing.
    """
    unit = name if "." in name else name + ".service"

    def show() -> dict[str, str]:
        return parse_properties(systemctl(["show", "--property", PROPERTIES, unit])[1])

    def act(verb: str) -> None:
        code, output = systemctl([verb, unit])
        if code:
            raise HostError("systemctl %s %s: %s" % (verb, unit, output.strip()))

    before = show()
    claims = [{"kind": "unit", "name": unit}]
    if before.get("LoadState") == "not-found" and check_mode:
        return {"changed": True, "held_back": [], "claims": claims, "msg": "would follow once %s is installed" % unit}
    if before.get("LoadState") != "loaded":
        raise HostError("there is no usable unit %s (%s)" % (unit, before.get("LoadState", "unknown")))
    enable = before.get("UnitFileState") in ("disabled", "indirect")
    inactive = before.get("ActiveState") not in ("active", "reloading")
    tried = before.get("ConditionTimestampMonotonic", "0") != "0"
    held_back = inactive and tried and before.get("ConditionResult") == "no"
    started = inactive and not held_back
    if not check_mode:
        if enable:
            act("enable")
        if inactive:
            act("start")
            now = show()
            held_back = now.get("ConditionResult") == "no"
            started = now.get("ActiveState") in ("active", "reloading", "activating")
            if not started and not held_back:
                raise HostError("%s was started and is %s" % (unit, now.get("ActiveState")))
    why = conditions(systemctl(["cat", unit])[1]) if held_back else []
    return {"changed": enable or started, "held_back": why, "claims": claims}
