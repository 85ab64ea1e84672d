"""Switching on components of a distribution's archive, in whichever format its sources are. Standard library only."""

from __future__ import annotations

import re
from typing import List, Sequence

from .gpustrap_node.apt_sources import ONE_LINE, YES

FIELD = re.compile(r"^(?P<name>[A-Za-z-]+):(?P<value>[^\n]*(?:\n[ \t][^\n]*)*)", re.MULTILINE)


def with_components(text: str, deb822: bool, wanted: Sequence[str], suites: Sequence[str]) -> str:
    """The text of a sources file in which every live entry of the archive has the components; else unchanged.

    Args:
        text: The file.
        deb822: Its format.
        wanted: Components.
        suites: Names of the release: its codename, and what else means it. Entries of it, and of its updates and
            security fixes, are the archive's.
    """
    return _deb822(text, wanted, suites) if deb822 else _one_line(text, wanted, suites)


def is_archive(uri: str, suite: str, components: Sequence[str], suites: Sequence[str]) -> bool:
    """Whether an entry is one of the distribution's own archive or a mirror of it.

    A mirror's URI may be anything: what tells it is the suite, and that it has main.
    """
    bare = suite.partition("/")[0]
    own = any(bare == name or bare in (name + "-updates", name + "-security") for name in suites)
    return own and "main" in components and not uri.startswith("cdrom:")


def missing(present: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The components that an entry lacks, in order."""
    return [name for name in wanted if name not in present]


def _one_line(text: str, wanted: Sequence[str], suites: Sequence[str]) -> str:
    lines = text.splitlines(True)
    for number, line in enumerate(lines):
        code, mark, comment = line.rstrip("\n").partition("#")
        found = ONE_LINE.match(code.strip())
        if not found or found.group(1) != "deb":
            continue
        components = found.group(5).split()
        if is_archive(found.group(3), found.group(4), components, suites):
            lack = missing(components, wanted)
            end = " " + mark + comment if mark else ""
            lines[number] = " ".join([code.rstrip(), *lack]) + end + ("\n" if line.endswith("\n") else "")
    return "".join(lines)


def _deb822(text: str, wanted: Sequence[str], suites: Sequence[str]) -> str:
    parts: List[str] = re.split(r"(\n(?:[ \t]*\n)+)", text)
    return "".join(part if number % 2 else _stanza(part, wanted, suites) for number, part in enumerate(parts))


def _stanza(stanza: str, wanted: Sequence[str], suites: Sequence[str]) -> str:
    plain = re.sub(r"(?m)^#.*\n?", "", stanza)
    fields = {m.group("name").lower(): m.group("value").split() for m in FIELD.finditer(plain)}
    components = fields.get("components", [])
    live = (fields.get("enabled") or ["yes"])[0].lower() in YES and "deb" in fields.get("types", [])
    ours = any(is_archive(u, s, components, suites) for u in fields.get("uris", []) for s in fields.get("suites", []))
    lack = missing(components, wanted)
    if not (live and ours and lack):
        return stanza
    field = re.compile(r"^components:[^\n]*(?:\n[ \t][^\n]*)*", re.IGNORECASE | re.MULTILINE)
    return field.sub(lambda found: " ".join([found.group(0).rstrip(), *lack]), stanza, count=1)
