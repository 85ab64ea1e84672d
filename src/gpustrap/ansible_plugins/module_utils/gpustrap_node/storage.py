"""Mounted filesystems that something may be installed on."""

from __future__ import annotations

import re
from typing import Iterable

from .host import Host

LOCAL = re.compile(r"^(ext[234]|xfs|btrfs|zfs|f2fs|jfs|reiserfs|vfat|exfat|ntfs3?|bcachefs|nilfs2)$")
SHARED = re.compile(r"^(autofs|nfs4?|cifs|smb3|ceph|glusterfs|lustre|beegfs|gpfs|9p|afs|wekafs|fuse\..+)$")
INSIDE = re.compile(r"/(proc|sys|dev|run|snap|var/snap|var/lib/(docker|containers|containerd|kubelet))(/|$)")
SCRATCH = ("/tmp", "/var/tmp")  # noqa: S108 - named, not written
# What apt and docker fill; a filesystem that holds one of them counts whatever its kind.
FILLED = ("/var", "/var/cache/apt", "/var/lib/docker", "/var/lib/containerd")
MAX = 200


def parse_mountinfo(text: str) -> list[tuple[str, str, str, list[str]]]:
    """(mount, device, type, flags) of each line of /proc/self/mountinfo; see proc(5)."""
    found = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        mount, tail = left.split(" "), right.split(" ")
        if not dash or len(mount) < 6 or len(tail) < 3:
            continue
        flags = mount[5].split(",") + tail[2].split(",")  # of the mount, then of the filesystem
        rest = sorted({flag for flag in flags if "=" not in flag} - {"rw", "ro"})
        found.append((_unescape(mount[4]), _unescape(tail[1]), tail[0], ["ro" if "ro" in flags else "rw", *rest]))
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), text)


def wanted(mount: str, kind: str) -> bool:
    """Whether a mount counts: a disk, a share, the root of a container, or a scratch directory in memory."""
    if mount == "/":
        return True
    if kind == "tmpfs":
        return mount in SCRATCH
    return bool(LOCAL.match(kind) or SHARED.match(kind)) and kind != "autofs" and not INSIDE.match(mount)


def holding(path: str, mounts: Iterable[str]) -> str:
    """The mount point a path lies on; empty if there is none."""
    above = (mount for mount in mounts if (path + "/").startswith(mount.rstrip("/") + "/"))
    return max(above, key=len, default="")


def on_share(host: Host, path: str) -> bool:
    """Whether a path lies on a share, or where one would be mounted by looking at it: a dead server hangs the probe."""
    mounts = parse_mountinfo(host.read("/proc/self/mountinfo") or "")
    kinds = {mount: kind for mount, _, kind, _ in mounts}
    return bool(SHARED.match(kinds.get(holding(path, kinds), "")))


def filesystem_facts(host: Host) -> list[dict[str, object]]:
    """Space, inodes and flags by mount point. Shares are not measured: a dead server would hang the probe."""
    text = host.read("/proc/self/mountinfo") or ""
    seen = {}
    for mount, device, kind, options in parse_mountinfo(text):  # the last mount of a place hides the others
        seen[mount] = (device, kind, options)
    filled = {holding(path, seen) for path in FILLED}
    found: list[dict[str, object]] = []
    for mount, (device, kind, options) in sorted(seen.items()):
        if not (mount in filled or wanted(mount, kind)) or len(found) >= MAX:
            continue
        shared = bool(SHARED.match(kind))
        if not shared and not host.is_dir(mount) and host.live:  # one file bound into a container
            continue
        space = None if shared else host.space(mount)
        found.append(
            {
                "mount": mount,
                "device": device,
                "type": kind,
                "options": options,
                "size": space.size if space else 0,
                "free": space.free if space else 0,
                "inodes": space.inodes if space else 0,
                "inodes_free": space.inodes_free if space else 0,
            }
        )
    return found
