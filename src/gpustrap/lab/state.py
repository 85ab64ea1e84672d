"""What the lab keeps on this machine: one directory per lab, the user's alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

DIRECTORY_VARIABLE = "GPUSTRAP_LAB_DIR"
SCRATCH = "gpustrap-lab-"


def owner() -> pwd.struct_passwd:
    """The person at the keyboard: under sudo the one who called it, so that they can read the lab's password."""
    caller = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return pwd.getpwuid(int(caller) if caller.isdecimal() else os.geteuid())


def root() -> Path:
    """Where labs keep their files."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen) if chosen else Path(owner().pw_dir) / ".local/state/gpustrap/labs"


def directory(lab: str) -> Path:
    """One lab's directory."""
    return root() / lab


def labs() -> tuple[str, ...]:
    """The names of the labs that keep files here."""
    return tuple(sorted(path.parent.name for path in root().glob("*/password")))


def make_directory(path: Path) -> None:
    """Make a directory, and what is missing above it, for the owner."""
    missing = [part for part in (path, *path.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(mode=0o700, exist_ok=True)
        hand_over(part)


def write(path: Path, text: str) -> None:
    """Write a file in one step, readable by the owner alone."""
    make_directory(path.parent)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    new.touch(mode=0o600)
    new.write_text(text, encoding="utf-8")
    hand_over(new)
    new.replace(path)


def hand_over(path: Path) -> None:
    """Give a file to the owner."""
    person = owner()
    if person.pw_uid != os.geteuid():
        os.chown(path, person.pw_uid, person.pw_gid)


def password(lab: str) -> str:
    """The lab's password, made at the first use."""
    path = password_file(lab)
    if not path.exists():
        write(path, secrets.token_urlsafe(15) + "\n")
    return path.read_text(encoding="utf-8").rstrip("\n")


def password_file(lab: str) -> Path:
    """The file that holds the password of user ``ubuntu`` on every node of the lab."""
    return directory(lab) / "password"


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a lock over all processes of this machine that use the same state directory."""
    path = root() / f"{name}.lock"
    make_directory(path.parent)
    with path.open("w") as handle:
        hand_over(path)
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory for the moment, and no trace of it afterwards: where the process is killed, `sweep` takes it.

    It lies in the system's own place for such, because sockets of gpg want a short path.
    """
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as directory, (Path(directory) / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        place = Path(directory) / "d"
        place.mkdir(mode=0o700)
        yield place


def sweep() -> None:
    """Remove the scratch directories of processes that were killed."""
    for lock_file in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*/.lock"):
        with contextlib.suppress(OSError), lock_file.open("r+") as handle:  # another user's, or just gone
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock_file.parent, ignore_errors=True)


def remove(lab: str) -> None:
    """Forget a lab's files."""
    shutil.rmtree(directory(lab), ignore_errors=True)
