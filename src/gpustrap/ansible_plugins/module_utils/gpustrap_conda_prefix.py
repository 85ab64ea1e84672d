"""What is at a conda prefix, and whose it is. Standard library only.

A conda prefix cannot be installed beside and renamed: its paths are written into its files. So a marker beside the
prefix says "being installed", and one inside, written last, says "complete" and by which installer.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

ABSENT, OURS, HALF_MADE, FOREIGN = "absent", "ours", "half-made", "foreign"


class Prefix:
    """One prefix and its two markers."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.conda = os.path.join(path, "bin", "conda")
        self.complete = os.path.join(path, ".gpustrap-installer.json")
        self.beside = path.rstrip("/") + ".gpustrap-installing"

    def state(self) -> str:
        """Absent (or an empty directory), ours, half-made by us, or somebody else's."""
        if os.path.exists(self.beside):
            return HALF_MADE
        if os.path.exists(self.complete):
            return OURS
        if os.path.isdir(self.path) and not os.listdir(self.path):
            return ABSENT
        return FOREIGN if os.path.lexists(self.path) else ABSENT

    def installer(self) -> str:
        """SHA-256 of the installer that completed this prefix; empty if none did, or if its conda is gone."""
        if self.state() != OURS or not os.access(self.conda, os.X_OK):
            return ""
        return str(_load(self.complete).get("sha256", ""))

    def half_made_is_fresh(self) -> bool:
        """Whether the install that was cut off was the first: then nothing of the user's is in it."""
        return bool(_load(self.beside).get("fresh"))

    def begin(self, fresh: bool) -> None:
        """From here on the prefix is half-made."""
        _save(self.beside, {"fresh": fresh})

    def finish(self, sha256: str, version: str) -> None:
        """Complete; the order makes an interruption in between look half-made."""
        _save(self.complete, {"sha256": sha256, "version": version})
        os.unlink(self.beside)

    def clear(self) -> None:
        """Removes a fresh, half-made prefix. The directory itself may be a mount point, which stays."""
        for entry in os.listdir(self.path) if os.path.isdir(self.path) else ():
            path = os.path.join(self.path, entry)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        if os.path.isdir(self.path) and not os.path.ismount(self.path):
            os.rmdir(self.path)


def room(path: str) -> tuple[Any, ...]:
    """(MiB free, inodes free or None where the file system does not count them) where `path` is or would be."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize >> 20, found.f_favail if found.f_files else None


def executable(path: str) -> bool:
    """Whether programs may run from the file system where `path` is or would be."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return not os.statvfs(path).f_flag & (os.ST_NOEXEC | os.ST_RDONLY)


def work_directory(candidates: list[str], mib: int) -> str:
    """The first directory with that much room from which programs may run; empty if there is none."""
    for path in candidates:
        if os.path.isdir(path) and executable(path) and room(path)[0] >= mib:
            return path
    return ""


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _save(path: str, value: dict[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)
