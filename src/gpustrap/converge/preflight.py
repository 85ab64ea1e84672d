"""Looks at a node's facts before the first change: what would make the run fail half-way is refused now."""

from __future__ import annotations

from pathlib import PurePosixPath

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts, FilesystemFacts
from gpustrap.model.lock import NodeLock

# docs/apply.md names these numbers and places.
MIN_FREE_BYTES = 1 << 30
MIN_FREE_INODES = 10_000
FILLED = ("/", "/var", "/var/cache/apt")
FILLED_BY_DOCKER = ("/var/lib/docker", "/var/lib/containerd")


def preflight(name: str, facts: Facts, entry: NodeLock | None) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """Refusals, and things only to be mentioned.

    Args:
        name: The node.
        facts: Fresh facts of it.
        entry: Its entry in the lock, if it has one.
    """
    problems = [p for mount in _mounts(facts, entry) if (p := _room(name, mount)) is not None]
    notes = [
        f"the package manager is busy: {lock.command or 'a process'} (pid {lock.pid}) holds {lock.path}; the roles wait"
        for lock in facts.package_manager.locks
    ]
    if facts.package_manager.interrupted:
        notes.append("dpkg was interrupted; the first role repairs it")
    return tuple(problems), tuple(notes)


def _mounts(facts: Facts, entry: NodeLock | None) -> list[FilesystemFacts]:
    """The filesystems that the roles fill, each once."""
    roles = entry.roles if entry else {}
    places = [*FILLED, *(FILLED_BY_DOCKER if "docker" in roles else ())]
    places += filter(None, [roles.get("conda", {}).get("conda_prefix")])
    found: dict[str, FilesystemFacts] = {}
    for place in places:
        holding = [f for f in facts.filesystems if PurePosixPath(place).is_relative_to(f.mount)]
        if holding:
            nearest = max(holding, key=lambda f: len(f.mount))
            found[nearest.mount] = nearest
    return list(found.values())


def _room(name: str, filesystem: FilesystemFacts) -> Problem | None:
    short = ""
    if filesystem.size and filesystem.free < MIN_FREE_BYTES:
        short = f"has {filesystem.free >> 20} MiB free, needs {MIN_FREE_BYTES >> 20}"
    elif filesystem.inodes and filesystem.inodes_free < MIN_FREE_INODES:
        short = f"has {filesystem.inodes_free} inodes free, needs {MIN_FREE_INODES}"
    if not short:
        return None
    return Problem(
        code="disk-full",
        subject=f"node {name}",
        message=f"the filesystem {filesystem.mount} {short}; nothing was changed",
        exit_code=ExitCode.REFUSED,
        remedy=f"make room on {filesystem.mount} of {name} (apt-get clean, journalctl --vacuum-size=200M), apply again",
    )
