"""Settings of a whole node or of one user that may win over an environment; found without logging in as anybody.

What is found is tried out by whoever asks: most builds of frameworks know where their own libraries are.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpustrap_node.host import Host

from .smoke.common import CUDA

EVERYBODY = ("/etc/environment", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshenv")
SNIPPETS = "/etc/profile.d"
OF_USERS = (".profile", ".bash_profile", ".bashrc", ".zshrc", ".zshenv")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "autofs", "afs", "ceph", "lustre", "gpfs", "beegfs")  # may hang, or mount
MOST_USERS, MOST = 200, 4
SIZE = 256 * 1024
CHOICE = "CUDA_VISIBLE_DEVICES"
_NAMES = "LD_LIBRARY_PATH|PYTHONPATH|" + CHOICE
_SETS = re.compile(r"^\s*(?:export\s+)?(" + _NAMES + r")=(\"[^\"\n]*\"|'[^'\n]*'|[^\s;#]*)", re.MULTILINE)
_BEFORE = re.compile(r"\$\{\w+:?\+:?[^}]*\}+")  # ${NAME:+:${NAME}}, as NVIDIA's own instructions have it
_CUDA_LIBRARY = re.compile("lib(" + CUDA + r")[\w.-]*\.so")


@dataclass(frozen=True)
class Disturbance:
    """One of them.

    Attributes:
        said: What it is, for a person.
        variables: The environment to try it in; empty where it is plain that it wins.
    """

    said: str
    variables: tuple[tuple[str, str], ...] = field(default=())


@dataclass(frozen=True)
class _User:
    name: str
    home: str


def find(host: Host, modules: Sequence[str], path: str, conda: bool) -> list[Disturbance]:
    """What may win, each value once.

    Args:
        host: The machine (gpustrap_node's Host).
        modules: What the environment is for.
        path: Where it is.
        conda: Its Python is conda's, which looks into users' own directories first.
    """
    users = _users(host)
    found: dict[tuple[tuple[str, str], ...], Disturbance] = {}
    for said, home, text in _texts(host, users):
        for name, value in _SETS.findall(text):
            if home and name == CHOICE:
                continue  # a user's own choice, and nobody else's business
            kept = _matters(host, name, _plain(value, home), modules)
            if kept is not None and len(found) < MOST:
                key = ((name, kept),)
                found.setdefault(key, Disturbance(f"{said} sets {name} to {kept or 'nothing'}", key))
    return [*found.values(), *(_user_packages(host, users, modules, path) if conda else ())]


def _texts(host: Host, users: Sequence[_User]) -> Iterator[tuple[str, str, str]]:
    """Start-up files: what to call each, the home it speaks of, and its text."""
    for file in (*EVERYBODY, *host.match(SNIPPETS, "*.sh")):
        yield file, "", _text(host, file)
    for user in users:
        for name in OF_USERS:
            yield f"{user.name}'s ~/{name}", user.home, _text(host, f"{user.home}/{name}")


def _text(host: Host, file: str) -> str:
    """A file's text; a pipe or a huge file in its place is nobody's settings."""
    status = host.stat(file)
    small = status is not None and stat.S_ISREG(status.st_mode) and status.st_size <= SIZE
    return str(host.read(file) or "") if small else ""


def _plain(value: str, home: str) -> str:
    """A value without quotes and what it was before, and with the home that it speaks of."""
    value = _BEFORE.sub("", value.strip("\"'"))
    for word in ("$HOME/", "${HOME}/", "~/") if home else ():
        value = value.replace(word, f"{home}/")
    return value


def _matters(host: Host, name: str, value: str, modules: Sequence[str]) -> str | None:
    """The part of a value that can win; None if none can."""
    if name == CHOICE:
        return value if "$" not in value else None
    wanted = _CUDA_LIBRARY.match if name == "LD_LIBRARY_PATH" else lambda entry: entry in modules
    parts = [part for part in value.split(":") if part.startswith("/") and "$" not in part]
    kept = [part for part in parts if any(wanted(entry) for entry in host.names(part))]
    return ":".join(kept) or None


def _user_packages(host: Host, users: Sequence[_User], modules: Sequence[str], path: str) -> list[Disturbance]:
    """Packages in users' own directories, which come before those of an environment that is no venv."""
    found: list[Disturbance] = []
    pythons = [library.rpartition("/")[2] for library in host.match(f"{path}/lib", "python3*")]
    for user, python in [(user, python) for user in users for python in pythons]:
        place = f"{user.home}/.local/lib/{python}/site-packages"
        there = sorted(set(host.names(place)) & {*modules, "numpy", "nvidia"})
        if there and len(found) < MOST:
            found.append(Disturbance(f"{user.name} has {', '.join(there)} in {place}, which is taken first"))
    return found


def _users(host: Host) -> list[_User]:
    """People with a home on this machine's own disks; others' could hang."""
    rows = [line.split(":") for line in str(host.read("/etc/passwd") or "").splitlines()]
    people = [_User(row[0], row[5]) for row in rows if len(row) > 6 and row[2].isdecimal() and _is_person(row)]
    remote = [line.split()[1] for line in str(host.read("/proc/mounts") or "").splitlines() if _is_remote(line)]
    local = [user for user in people if not any(f"{user.home}/".startswith(f"{mount}/") for mount in remote)]
    return local[:MOST_USERS]


def _is_person(row: list[str]) -> bool:
    return (row[2] == "0" or int(row[2]) >= 1000) and row[0] != "nobody" and row[5].startswith("/")


def _is_remote(line: str) -> bool:
    cells = line.split()
    return len(cells) > 2 and cells[1] != "/" and (cells[2] in REMOTE or cells[2].startswith("fuse."))
