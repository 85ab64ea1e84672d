"""The state of named resources, in one pass. An absent resource has the empty state; unreadable is unknown."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from typing import Callable, Dict, Union

from . import dpkg, toml
from .host import Host, NodeError

State = Dict[str, object]
Seen = Union[State, str]  # a state, or why it is unknown

KINDS = ("package", "file", "directory", "link", "unit", "key", "environment")
HASH_LIMIT = 512 * 1024 * 1024
UNIT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9:_.@\\-]*\.[a-z]+\Z")
UNIT_FIELDS = ("LoadState", "UnitFileState", "ActiveState")


def observe(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Answer the verb.

    Args:
        host: The machine.
        args: ``{"resources": [{"kind", "name"}]}``.

    Returns:
        ``{"states": [{"kind", "name", "state": {...}} or {"kind", "name", "unknown": "why"}]}``, in order.
    """
    wanted = args.get("resources", [])
    if not isinstance(wanted, list):
        raise NodeError("bad-request", "args.resources is a list of kind and name")
    pairs = [_pair(one) for one in wanted]
    states = []
    for (kind, name), seen in zip(pairs, observe_all(host, pairs)):  # noqa: B905 - Python 3.8 has no strict
        field = "unknown" if isinstance(seen, str) else "state"
        states.append({"kind": kind, "name": name, field: seen})
    return {"states": states}


def _pair(one: object) -> tuple[str, str]:
    if isinstance(one, dict) and one.get("kind") in KINDS and isinstance(one.get("name"), str):
        return one["kind"], one["name"]
    raise NodeError("bad-request", "a resource has a kind (%s) and a name" % ", ".join(KINDS))


def observe_all(host: Host, pairs: list[tuple[str, str]]) -> list[Seen]:
    """The state of each (kind, name): dpkg's status is read once, systemd asked once, a JSON file parsed once."""
    eyes = Eyes(host)
    eyes.load_units([name for kind, name in pairs if kind == "unit"])
    return [eyes.see(kind, name) for kind, name in pairs]


class Eyes:
    """Looks at resources; keeps what several of them need."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.packages: dict[str, dpkg.Package] | str | None = None
        self.units: dict[str, Seen] = {}
        self.documents: dict[str, object] = {}
        self.users: dict[int, str] | None = None
        self.groups: dict[int, str] | None = None
        self.kinds: dict[str, Callable[[str], Seen]] = {
            "package": self.package,
            "file": self.file,
            "directory": self.directory,
            "link": self.link,
            "unit": self.unit,
            "key": self.key,
            "environment": self.environment,
        }

    def see(self, kind: str, name: str) -> Seen:
        """One resource's state, or why it is unknown; a failure stays with the resource it happened at."""
        try:
            return self.kinds[kind](name)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            return "%s: %s" % (name, getattr(error, "strerror", None) or error)

    def package(self, name: str) -> Seen:
        """Version and hold; ``status`` only where it is not simply installed."""
        if self.packages is None:
            self.packages = _packages(self.host)
        if isinstance(self.packages, str):
            return self.packages
        found = self.packages.get(name)
        if found is None or not found.present:
            return {}
        state: State = {"version": found.version, "hold": found.hold}
        if not found.sound:
            state["status"] = found.state if found.flag == "ok" else found.flag
        return state

    def file(self, name: str) -> Seen:
        """Content, mode and owner; of the file behind it where the path is a link, which is then named."""
        link = self.host.readlink(name)
        try:
            status = os.stat(self.host.path(name))
        except FileNotFoundError:
            return {} if link is None else {"link": link, "type": "dangling"}
        state = self._attributes(status)
        if link is not None:
            state["link"] = link
        if stat.S_ISREG(status.st_mode):
            state["sha256"] = _sha256(self.host.path(name))
        else:
            state["type"] = "directory" if stat.S_ISDIR(status.st_mode) else "special"
        return state

    def directory(self, name: str) -> Seen:
        """Mode and owner."""
        status = os.stat(self.host.path(name))
        state = self._attributes(status)
        if not stat.S_ISDIR(status.st_mode):
            state["type"] = "file"
        return state

    def link(self, name: str) -> Seen:
        """The target; a file or directory in its place is named as such."""
        where = self.host.path(name, follow=False)
        status = os.lstat(where)
        if stat.S_ISLNK(status.st_mode):
            return {"target": os.readlink(where)}
        return {"type": "directory" if stat.S_ISDIR(status.st_mode) else "file"}

    def unit(self, name: str) -> Seen:
        """Enabled and active, in systemd's words."""
        return self.units[name]

    def key(self, name: str) -> Seen:
        """A hash of the value at a JSON pointer: the value itself may be a secret."""
        path, hash_sign, pointer = name.partition("#")
        if not hash_sign or not pointer.startswith("/"):
            raise ValueError("a key is named /path/of/file.json#/key/path, or /path/of/file.toml#/table/key")
        if path not in self.documents:
            with open(self.host.path(path), "rb") as stream:
                text = stream.read().decode("utf-8-sig")
            self.documents[path] = text if path.endswith(".toml") else json.loads(text)
        if path.endswith(".toml"):
            table, _slash, key = pointer[1:].rpartition("/")
            said = toml.value(str(self.documents[path]), table, key)
            return {"sha256": digest(said)} if said else {}
        found, value = lookup(self.documents[path], pointer)
        return {"sha256": digest(value)} if found else {}

    def environment(self, name: str) -> Seen:
        """What an environment of frameworks was built from, and whether somebody changed it since."""
        from .environments import state  # noqa: PLC0415 - only nodes that have one pay for it

        return state(self.host, name)

    def load_units(self, names: list[str]) -> None:
        """Ask systemd about all units at once."""
        full = {name: name if "." in name.rpartition("@")[2] else name + ".service" for name in names}
        plain = [f for f in dict.fromkeys(full.values()) if UNIT.match(f) and "@." not in f]
        seen = _show_units(self.host, plain) if plain else {}
        for name, unit in full.items():
            why = "a template has no state of its own" if "@." in unit else "not the name of a unit"
            self.units[name] = seen.get(unit, "%s: %s" % (name, why))

    def _attributes(self, status: os.stat_result) -> State:
        if self.users is None or self.groups is None:
            self.users, self.groups = _names(self.host, "/etc/passwd"), _names(self.host, "/etc/group")
        return {
            "mode": "%04o" % stat.S_IMODE(status.st_mode),
            "owner": self.users.get(status.st_uid, str(status.st_uid)),
            "group": self.groups.get(status.st_gid, str(status.st_gid)),
        }


def _packages(host: Host) -> dict[str, dpkg.Package] | str:
    """All packages, or why nothing can be said: a journal means that the status file is behind."""
    if dpkg.journal(host):
        return "dpkg is at work or was interrupted"
    found = dpkg.packages(host)
    return "dpkg's status cannot be read" if found is None else found


def _names(host: Host, path: str) -> dict[int, str]:
    """Id -> name from a passwd or group file; others (a directory service's) stay numbers."""
    rows = [line.split(":") for line in (host.read(path) or "").splitlines()]
    return {int(row[2]): row[0] for row in reversed(rows) if len(row) > 2 and row[2].isdecimal()}


def _show_units(host: Host, units: list[str]) -> dict[str, Seen]:
    answer = host.run(["systemctl", "show", "--property=" + ",".join(UNIT_FIELDS), "--", *units])
    if answer is None or answer.rc != 0:
        why = (answer.stderr.strip()[:200] or "exit status %d" % answer.rc) if answer else "no answer"
        return dict.fromkeys(units, "systemctl: " + why)
    return parse_units(answer.stdout, units)


def parse_units(text: str, units: list[str]) -> dict[str, Seen]:
    """The blocks of ``systemctl show``, one per unit in the order asked."""
    blocks = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in text.strip().split("\n\n")]
    if len(blocks) != len(units):
        return {unit: "systemctl: %d answers for %d units" % (len(blocks), len(units)) for unit in units}
    found: dict[str, Seen] = {}
    for unit, block in zip(units, blocks):  # noqa: B905 - Python 3.8 has no strict
        enabled = block.get("UnitFileState", "")
        gone = block.get("LoadState") == "not-found" or (not enabled and not block.get("ActiveState"))
        active = block.get("ActiveState", "")
        found[unit] = {} if gone else {"enabled": enabled, "active": "active" if active == "reloading" else active}
    return found


def lookup(document: object, pointer: str) -> tuple[bool, object]:
    """The value at an RFC 6901 pointer, and whether there is one."""
    value = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return False, None
    return True, value


def digest(value: object) -> str:
    """SHA-256 of the value's canonical JSON: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _sha256(path: str) -> str:
    seen, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            seen.update(block)
            size += len(block)
            if size > HASH_LIMIT:
                raise ValueError("too large to compare (more than %d MiB)" % (HASH_LIMIT >> 20))
    return seen.hexdigest()
