"""Reads lock files of environments: which packages one has, and what is different in another."""

from __future__ import annotations

import re
from collections.abc import Mapping

PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
LINKED = re.compile(r"^(?:https?|file)://\S*/([^/\s]+)-([^/-]+)-([^/-]+)\.(?:conda|tar\.bz2)#", re.MULTILINE)
FROM = re.compile(r"^ +# from (https?://\S+)$", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
SHOWN = 10


def packages(text: str) -> dict[str, str]:
    """Versions by name; a package of conda has its build in its version."""
    of_uv = dict(PINNED.findall(text))
    return of_uv | {name: f"{version} {build}" for name, version, build in LINKED.findall(text)}


def indexes(text: str) -> list[str]:
    """The indexes that packages of uv come from, as uv wrote them down."""
    return list(dict.fromkeys(FROM.findall(text)))


def without_hash(body: str) -> list[str]:
    """The packages of uv's part that nothing proves."""
    entries = re.split(r"\n(?=\S)", body.partition("@EXPLICIT")[0])
    pinned = [(PINNED.match(entry.lstrip()), entry) for entry in entries]
    return [found[1] for found, entry in pinned if found and not HASH.search(entry)]


def difference(old: str, new: str) -> str:
    """What a lock file has that the one before had not, in one line; empty where the packages are the same.

    Args:
        old: The text before; empty where there was none.
        new: The text now.
    """
    before, after = packages(old), packages(new)
    if not before:
        return f"{_count(after)} locked"
    said = [*_changed(before, after)]
    more = f", and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    if not said:
        return "" if _body(old) == _body(new) else "the same packages, from other files"
    return ", ".join(said[:SHOWN]) + more


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    moved = [
        f"{name} {before[name]} -> {after[name]}" for name in before if after.get(name, before[name]) != before[name]
    ]
    come = [f"+ {name} {version}" for name, version in after.items() if name not in before]
    gone = [f"- {name} {version}" for name, version in before.items() if name not in after]
    return [*moved, *come, *gone]


def _body(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _count(found: Mapping[str, str]) -> str:
    return f"{len(found)} package{'' if len(found) == 1 else 's'}"
