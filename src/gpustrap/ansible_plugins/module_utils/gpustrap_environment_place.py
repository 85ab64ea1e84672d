"""Where the builds of an environment lie: what must be done, the switch to another, what may go. Stdlib only."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
import time
from typing import Any, Iterator, NamedTuple

from ansible.module_utils.gpustrap_node import environments
from ansible.module_utils.gpustrap_node.host import Host

KEEP, SWITCH, BUILD = "keep", "switch", "build"
SCRATCH, LOCK = ".tmp", ".lock"  # ending of a directory beside a build; file below the prefix
ARCHIVE = re.compile(r"(\.conda|\.tar\.bz2)\Z")


class BuildError(Exception):
    """Why something cannot be done, for a person."""


class Need(NamedTuple):
    """What one environment needs.

    Attributes:
        action: KEEP, SWITCH (a sound build is there and not in use) or BUILD.
        directory: Of the build that is kept, switched to or made.
        why: In a few words.
        leftovers: Builds that were never complete, and what else a run that was cut off left; by path.
        old: Builds that are neither in use, nor kept for going back, nor open; by path.
    """

    action: str
    directory: str
    why: str
    leftovers: list[str]
    old: list[str]


def decide(host: Host, prefix: str, name: str, lock: str) -> Need:
    """What it takes until `current` leads to a sound build of this lock; reads only."""
    there = environments.builds(host, prefix, name)
    sound = sorted((b for b in there if b.lock == lock and not b.changes), key=lambda b: (b.current, b.directory))
    leftovers = [b.path for b in there if not b.marker] + host.match(os.path.join(prefix, name), "*" + SCRATCH)
    if sound:
        action = KEEP if sound[-1].current else SWITCH
        why = "is there already, and another is in use"
        return Need(action, sound[-1].directory, why, leftovers, dispensable(there) if action == KEEP else [])
    taken = {b.directory for b in there if b.marker}
    directory = next(d for d in _directories(lock) if d not in taken)
    now = next((b for b in there if b.current and b.marker), None)
    changed = now is not None and now.lock == lock
    why = "was changed by hand: " + ", ".join(now.changes) if now and changed else "from another lock" if now else "new"
    return Need(BUILD, directory, why, leftovers, [])


def _directories(lock: str) -> Iterator[str]:
    yield lock
    number = 2
    while True:
        yield "{0}-{1}".format(lock, number)
        number += 1


def complete(path: str, marker: dict[str, Any]) -> None:
    """Mark a build complete: what it is made of is on the disk before the marker is."""
    there = environments.parts(Host("/"), path)
    os.sync()
    whole = dict(marker, fingerprint=environments.fingerprint(there), parts=there)
    beside = os.path.join(path, environments.MARKER + ".new")
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(beside, 0o644)
    os.replace(beside, os.path.join(path, environments.MARKER))


def switch(place: str, directory: str) -> None:
    """Let `current` lead to another build at one stroke; the one before stays as `previous`."""
    before = _target(place, environments.CURRENT)
    if before and before != directory and os.path.exists(os.path.join(place, before, environments.MARKER)):
        _link(place, environments.PREVIOUS, before)
    _link(place, environments.CURRENT, directory)


def _target(place: str, link: str) -> str:
    try:
        return os.readlink(os.path.join(place, link))
    except OSError:
        return ""


def _link(place: str, link: str, target: str) -> None:
    beside = os.path.join(place, "." + link + ".new")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    os.symlink(target, beside)
    os.replace(beside, os.path.join(place, link))


def dispensable(builds: list[environments.Build]) -> list[str]:
    """What is neither current nor previous, and no process has open; by path."""
    old = [b.path for b in builds if b.marker and not b.current and not b.previous]
    used = in_use(old) if old else set()
    return [path for path in old if path not in used]


def prune(prefix: str, name: str) -> bool:
    """Remove what is dispensable; whether something was."""
    old = dispensable(environments.builds(Host("/"), prefix, name))
    for path in old:
        remove(path)
    return bool(old)


def remove(path: str) -> None:
    """Remove a build; its marker goes first, so that an interrupted removal leaves nothing that counts."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(path, environments.MARKER))
    shutil.rmtree(path)


def trim(cache: str) -> None:
    """Remove from the caches of uv and conda what no environment has any more: what one has, is there by two names."""
    unpacked = glob.glob(os.path.join(glob.escape(cache), "uv", "archive-v*", "*"))
    unpacked += map(os.path.dirname, glob.glob(os.path.join(glob.escape(cache), "conda", "*", "info")))
    for directory in unpacked:
        if not _linked(directory):
            shutil.rmtree(directory)
    for archive in glob.glob(os.path.join(glob.escape(cache), "conda", "*")):
        if ARCHIVE.search(archive) and not os.path.isdir(ARCHIVE.sub("", archive)):
            os.unlink(archive)


def _linked(directory: str) -> bool:
    for place, _directories, files in os.walk(directory):
        if any(os.lstat(os.path.join(place, name)).st_nlink > 1 for name in files):
            return True
    return False


def in_use(paths: list[str]) -> set[str]:
    """Those of the directories that a process runs from, works in, has loaded libraries of, or was started with."""
    found: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if len(found) == len(paths):
            break
        seen = _traces("/proc/" + pid)
        found |= {path for path in paths if os.fsencode(path) + b"/" in seen}
    return found


def _traces(process: str) -> bytes:
    """Everything of a process that may name a directory; ended processes have nothing."""
    seen = []
    for link in ("exe", "cwd"):
        with contextlib.suppress(OSError):
            seen.append(os.fsencode(os.readlink(process + "/" + link)) + b"/")
    for file in ("maps", "cmdline", "environ"):
        with contextlib.suppress(OSError), open(process + "/" + file, "rb") as stream:
            seen.append(stream.read().replace(b"\0", b"/\n") + b"/")
    return b"\n".join(seen)


@contextlib.contextmanager
def alone(prefix: str, wait: int) -> Iterator[int]:
    """Only one run builds below a prefix; gives the lock's descriptor, which what builds must inherit.

    So the lock of a run that was killed lasts as long as the uv or conda that it left behind.

    Raises:
        BuildError: Another one does not end.
    """
    descriptor = os.open(os.path.join(prefix, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + wait
        while not _locked(descriptor):
            if time.monotonic() > end:
                holders = ", ".join(_holders(os.path.join(prefix, LOCK))) or "unknown"
                raise BuildError(
                    "another run builds environments below {0} and has not ended within {1} s (process {2})".format(
                        prefix, wait, holders
                    )
                )
            time.sleep(1)
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holders(path: str) -> list[str]:
    """The processes that have a file open, this one left out."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            links = os.listdir("/proc/{0}/fd".format(pid))
            targets = {os.readlink("/proc/{0}/fd/{1}".format(pid, number)) for number in links}
            if os.path.realpath(path) in targets and int(pid) != os.getpid():
                with open("/proc/{0}/comm".format(pid), encoding="utf-8", errors="replace") as stream:
                    found.append("{0}, {1}".format(pid, stream.read().strip()))
    return found
