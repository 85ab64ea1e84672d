"""The state of dpkg from its own files, and who holds its locks; nothing is locked or changed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from typing import NamedTuple

from .host import Host

STATUS = "/var/lib/dpkg/status"
UPDATES = "/var/lib/dpkg/updates"
LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
ABSENT = ("not-installed", "config-files")
FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux


class Package(NamedTuple):
    """One stanza of dpkg's status file."""

    name: str
    architecture: str
    version: str
    want: str
    flag: str
    state: str

    @property
    def hold(self) -> bool:
        """Somebody said: never upgrade this."""
        return self.want == "hold"

    @property
    def present(self) -> bool:
        """Anything of it but configuration files is there."""
        return self.state not in ABSENT

    @property
    def sound(self) -> bool:
        """Fully installed, or fully gone."""
        return self.flag == "ok" and self.state in (*ABSENT, "installed")


def parse_status(text: str) -> dict[str, Package]:
    """All packages by name; by ``name:architecture`` too. The native one goes before a foreign one."""
    stanzas = [_stanza(block) for block in text.split("\n\n")]
    packages = [p for p in stanzas if p]
    native = next((p.architecture for p in packages if p.name == "dpkg"), "")
    found: dict[str, Package] = {}
    for package in packages:
        found["%s:%s" % (package.name, package.architecture)] = package
        other = found.get(package.name)
        if other is None or not other.present or (package.present and package.architecture in (native, "all")):
            found[package.name] = package
    return found


def _stanza(block: str) -> Package | None:
    fields = {}
    for line in block.split("\n"):
        if line.startswith(("Package:", "Status:", "Version:", "Architecture:")):
            key, _, value = line.partition(":")
            fields[key] = value.strip()
    words = fields.get("Status", "").split()
    if "Package" not in fields or len(words) != 3:
        return None
    name, arch, version = fields["Package"], fields.get("Architecture", ""), fields.get("Version", "")
    return Package(name, arch, version, words[0], words[1], words[2])


def packages(host: Host) -> dict[str, Package] | None:
    """Dpkg's packages; None where there is no dpkg, or its status cannot be read."""
    text = host.read(STATUS)
    return None if text is None else parse_status(text)


def journal(host: Host) -> list[str]:
    """Journal files of a dpkg that is at work, or was interrupted."""
    return [name for name in host.names(UPDATES) if name.isdecimal()]


def health(host: Host, known: dict[str, Package]) -> dict[str, object]:
    """Locks, interruption, broken packages, holds."""
    locks = [held for held in (lock_holder(host, path) for path in LOCKS) if held]
    busy = any(str(held["path"]).startswith("/var/lib/dpkg/") for held in locks)
    every = [p for key, p in sorted(known.items()) if ":" in key]
    left = bool(journal(host))
    return {
        "locks": locks,
        # A dpkg at work looks like an interrupted one: only afterwards can it be said.
        "interrupted": None if left and busy else left,
        "broken": ["%s (%s)" % (p.name, p.state if p.flag == "ok" else p.flag) for p in every if not p.sound],
        "holds": sorted({p.name for p in every if p.hold}),
    }


def lock_holder(host: Host, path: str) -> dict[str, object] | None:
    """Who holds a lock file, found without taking it.

    fcntl's F_GETLK asks the kernel. Without permission to open the file (they are 0640 root), the list of
    all locks in /proc/locks is searched for its inode instead.
    """
    where = host.path(path)
    try:
        descriptor = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return _from_proc(host, path) if error.errno in (errno.EACCES, errno.EPERM) else None
    try:
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError as error:
        host.note("%s: %s" % (path, error.strerror))
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else _holder(host, path, pid)


def _from_proc(host: Host, path: str) -> dict[str, object] | None:
    status = host.stat(path)
    held = parse_proc_locks(host.read("/proc/locks") or "")
    if status is None:
        return None
    pid = held.get((os.major(status.st_dev), os.minor(status.st_dev), status.st_ino))
    return None if pid is None else _holder(host, path, pid)


def parse_proc_locks(text: str) -> dict[tuple[int, int, int], int]:
    """(major, minor, inode) -> pid of every POSIX lock in /proc/locks; waiting ones (``->``) hold nothing."""
    found = re.findall(
        r"^\d+: (?:POSIX|OFDLCK)\s+\S+\s+WRITE (-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", text, re.MULTILINE
    )
    return {(int(major, 16), int(minor, 16), int(inode)): int(pid) for pid, major, minor, inode in found}


def _holder(host: Host, path: str, pid: int) -> dict[str, object]:
    """A pid of 0 or -1: held from outside this container, or by no single process."""
    command = (host.line("/proc/%d/cmdline" % pid) or host.line("/proc/%d/comm" % pid)) if pid > 0 else ""
    return {"path": path, "pid": pid, "command": " ".join(command.replace("\0", " ").split())[:200]}
