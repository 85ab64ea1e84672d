"""What installing a CUDA toolkit would do to a node, before anything is done. Standard library only, Python 3.8.

A toolkit never brings, moves or removes a driver, removes nothing, and has room.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from . import gpustrap_apt as apt
from .gpustrap_node import dpkg

ARCHIVES = "/var/cache/apt/archives"
OF_A_TOOLKIT = re.compile(r"-\d+-\d+$")  # cuda-nvcc-13-2: below /usr/local/cuda-13.2
NSIGHT = "nsight-"  # the profilers: below /opt/nvidia
MEAN_FILE = 57_000  # bytes; what a file of a CUDA toolkit has on average, as in the catalog's preflight
SPARE = 256 << 20  # bytes; a file system that is full to the last byte is no help to anyone
INST = re.compile(r"^Inst (?P<name>[^ :]+)(?::\S+)? (?:\[[^\]]*\] )?\((?P<version>\S+)")


class Room(NamedTuple):
    """A file system: its number, and what is free of it."""

    device: int
    bytes: int
    inodes: int | None


Need = Tuple[str, int, int]  # directory, bytes, inodes
Look = Callable[[str], Room]


# --- packages ------------------------------------------------------------------------------------------------------


def refuse_drivers(specs: Sequence[str], simulation: str, drivers: Sequence[str], but: Sequence[str]) -> None:
    """Raise where the simulated installation touches a package of a driver.

    Args:
        specs: What is to be installed.
        simulation: What ``apt-get -s install`` said of it.
        drivers: Globs of the names of driver packages.
        but: Globs of names that are none, although a glob of ``drivers`` matches.
    """
    found = []
    for act, names in zip(("install", "change the version of", "remove"), apt.parse_simulation(simulation)):  # noqa: B905 - 3.8
        touched = [name for name in names if matches(name, drivers) and not matches(name, but)]
        found.extend(["%s %s" % (act, ", ".join(touched))] if touched else [])
    if found:
        raise apt.AptError(
            "installing the CUDA toolkit would %s, and a toolkit leaves the driver alone; nothing was changed. To see "
            "what wants it, on the node: apt-get -s install --no-install-recommends %s"
            % ("; ".join(found), " ".join(specs)),
            apt.tail(simulation),
        )


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether one of the globs matches a name."""
    return any(fnmatchcase(name, one) for one in globs)


def parse_versions(simulation: str) -> list[tuple[str, str]]:
    """Name and version of all that the simulated installation unpacks."""
    found = (INST.match(line) for line in simulation.splitlines())
    return [(one.group("name"), one.group("version")) for one in found if one]


def parse_sizes(text: str) -> dict[str, tuple[int, int]]:
    """``apt-cache show``: package -> bytes of its archive, bytes on disk."""
    sizes: Dict[str, Tuple[int, int]] = {}
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Size|Installed-Size): (\S+)$", stanza, re.MULTILINE))
        if "Package" in fields:
            sizes[fields["Package"]] = int(fields.get("Size", 0)), int(fields.get("Installed-Size", 0)) * 1024
    return sizes


# --- room ----------------------------------------------------------------------------------------------------------


def needs(sizes: Dict[str, Tuple[int, int]]) -> list[Need]:
    """What goes where: archives to apt's cache, unpacked files by the name of their package."""
    wanted: List[Need] = [(ARCHIVES, sum(archive for archive, _unpacked in sizes.values()), len(sizes))]
    for name, (_archive, unpacked) in sizes.items():
        where = "/opt" if name.startswith(NSIGHT) else "/usr/local" if OF_A_TOOLKIT.search(name) else "/usr"
        wanted.append((where, unpacked, unpacked // MEAN_FILE + 1))
    return wanted


def refuse_shortage(wanted: Sequence[Need], look: Look, packages: int) -> None:
    """Raise where a file system has too few bytes or inodes; names every such file system at once."""
    told: Dict[int, Tuple[str, Room, int, int]] = {}
    for where, size, files in wanted:
        room = look(where)
        first, _room, sizes, inodes = told.get(room.device, (where, room, 0, 0))
        told[room.device] = first, room, sizes + size, inodes + files
    short = []
    for where, room, size, files in told.values():
        if size + SPARE > room.bytes:
            short.append("%s has %s free, %s needed" % (where, mib(room.bytes), mib(size + SPARE)))
        if room.inodes is not None and files > room.inodes:
            short.append("%s has %d inodes free, about %d needed" % (where, room.inodes, files))
    if short:
        raise apt.AptError(
            "too little room for the %d packages of the CUDA toolkit: %s; nothing was installed. Make room, on the "
            "node: sudo du -xh --max-depth 2 / | sort -h | tail" % (packages, "; ".join(short))
        )


def mib(size: int) -> str:
    """Bytes as ``12 MiB``, rounded down."""
    return "%d MiB" % (size >> 20)


def look(path: str) -> Room:
    """The file system that a directory lies on, or will lie on."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    s = os.statvfs(path)
    return Room(os.stat(path).st_dev, s.f_bavail * s.f_frsize, s.f_favail if s.f_files else None)


# --- the order -----------------------------------------------------------------------------------------------------


def plan(
    runner: apt.Runner,
    known: Dict[str, dpkg.Package],
    packages: Sequence[Dict[str, str]],
    *,
    drivers: Sequence[str],
    but: Sequence[str],
    lock_timeout: int,
    check_mode: bool,
    root: str = "/",
    looked: Look = look,
) -> dict[str, Any]:
    """Say what apt is to install, or raise with what speaks against it; the module's result."""
    specs = ["%s=%s" % (one["name"], one["version"]) for one in packages]
    missing = apt.missing_packages(specs, known)
    held = [name for name in (apt.split_spec(spec)[0] for spec in missing) if name in known and known[name].hold]
    if held:
        raise apt.AptError(
            "on hold in another version: %s. Let go of it, on the node: sudo apt-mark unhold %s; or plan the version "
            "that is there" % (", ".join("%s %s" % (name, known[name].version) for name in held), " ".join(held))
        )
    works, simulation = _simulated(runner, missing, lock_timeout, check_mode, root) if missing else (True, "")
    if works and missing:
        refuse_drivers(missing, simulation, drivers, but)
        apt.refuse_removals(simulation, ())
        unpacked = parse_versions(simulation)
        sizes = parse_sizes(runner.run(["apt-cache", "show", *map("=".join, unpacked)], apt.ASK_SECONDS)[1])
        refuse_shortage(needs(sizes), looked, len(unpacked))
    return {
        "changed": False,
        "install": missing if works else [],
        "would_follow": [] if works else missing,
        "claims": [{"kind": "package", "name": one["name"]} for one in packages],
    }


def _simulated(
    runner: apt.Runner, specs: Sequence[str], lock_timeout: int, check_mode: bool, root: str
) -> tuple[bool, str]:
    """Simulate, with lists of today; in check mode with those that are there, or not at all."""
    fresh = check_mode or apt.lists_are_fresh(runner.now(), root)
    if not fresh:
        apt.update(runner, lock_timeout)
    works, simulation = apt.simulate_install(runner, specs)
    if not works and not check_mode:
        if fresh:
            apt.update(runner, lock_timeout)
            works, simulation = apt.simulate_install(runner, specs)
        if not works:
            raise apt.AptError("apt cannot install %s" % ", ".join(specs), apt.tail(simulation))
    return works, simulation
