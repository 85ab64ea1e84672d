"""Switching on components of a distribution's archive, in whichever format its sources are. Standard library only."""

from __future__ import annotations

import re
from typing import Callable, List, Sequence
from urllib.parse import unquote

from .gpustrap_node.apt_sources import ONE_LINE, YES

QUOTED = re.compile(r"[\\|{}\[\]<>\"^~_=!@#$%&*\x00-\x20\x7f]")  # apt's URItoFileName()
ORIGINS = ("Debian", "Ubuntu")  # a full copy of an archive keeps its Release file, and so its name
Foreign = Callable[[str, str], bool]  # whether an entry of this URI and suite is known to be somebody else's
Lack = Callable[[Sequence[str], Sequence[str], Sequence[str]], List[str]]  # URIs, suites, components -> what to add

FIELD = re.compile(r"^(?P<name>[A-Za-z-]+):(?P<value>[^\n]*(?:\n[ \t][^\n]*)*)", re.MULTILINE)


def with_components(text: str, deb822: bool, wanted: Sequence[str], suites: Sequence[str], foreign: Foreign) -> str:
    """The text of a sources file in which every live entry of the archive has the components; else unchanged.

    Args:
        text: The file.
        deb822: Its format.
        wanted: Components.
        suites: Names of the release: its codename, and what else means it. Entries of it, and of its updates and
            security fixes, are the archive's.
        foreign: Tells entries that look the same, as Chrome's ``stable main`` and every PPA's do.
    """

    def lack(uris: Sequence[str], names: Sequence[str], components: Sequence[str]) -> List[str]:
        pairs = [(uri, suite) for uri in uris for suite in names]
        ours = any(is_archive(u, s, components, suites) and not foreign(u, s) for u, s in pairs)
        return missing(components, wanted) if ours else []

    return _deb822(text, lack) if deb822 else _one_line(text, lack)


def list_name(uri: str, suite: str) -> str:
    """What apt calls the lists of an entry, without its last part: ``mirror.example_debian_dists_trixie``."""
    place = re.sub(r"^[a-z+]+:(?://)?(?:[^/@]*@)?", "", unquote(uri).rstrip("/") + "/dists/" + suite.rstrip("/"))
    return QUOTED.sub(lambda found: "%%%02x" % ord(found.group(0)), place).replace("/", "_")


def origin(release: str) -> str:
    """Who publishes an archive, by its Release file; empty where that does not say."""
    found = re.search(r"^Origin:[ \t]*(.*?)[ \t]*$", release, re.MULTILINE)
    return found.group(1) if found else ""


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


def _one_line(text: str, lack: Lack) -> str:
    lines = text.splitlines(True)
    for number, line in enumerate(lines):
        code, mark, comment = line.rstrip("\n").partition("#")
        found = ONE_LINE.match(code.strip())
        if not found or found.group(1) != "deb":
            continue
        more = lack([found.group(3)], [found.group(4)], found.group(5).split())
        if more:
            end = " " + mark + comment if mark else ""
            lines[number] = " ".join([code.rstrip(), *more]) + end + ("\n" if line.endswith("\n") else "")
    return "".join(lines)


def _deb822(text: str, lack: Lack) -> str:
    parts: List[str] = re.split(r"(\n(?:[ \t]*\n)+)", text)
    return "".join(part if number % 2 else _stanza(part, lack) for number, part in enumerate(parts))


def _stanza(stanza: str, lack: Lack) -> str:
    plain = re.sub(r"(?m)^#.*\n?", "", stanza)
    fields = {m.group("name").lower(): m.group("value").split() for m in FIELD.finditer(plain)}
    components = fields.get("components", [])
    live = (fields.get("enabled") or ["yes"])[0].lower() in YES and "deb" in fields.get("types", [])
    more = lack(fields.get("uris", []), fields.get("suites", []), components)
    if not (live and more):
        return stanza
    field = re.compile(r"^components:[^\n]*(?:\n[ \t][^\n]*)*", re.IGNORECASE | re.MULTILINE)
    return field.sub(lambda found: " ".join([found.group(0).rstrip(), *more]), stanza, count=1)
