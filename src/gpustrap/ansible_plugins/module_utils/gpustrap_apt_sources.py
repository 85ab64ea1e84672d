"""Finding and switching off the entries of apt that name a repository we are about to own. Standard library only.

apt stops working altogether when two entries of one repository differ in Signed-By, so there may be only one.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

NOTE = "# replaced by gpustrap: "
ONE_LINE = re.compile(r"^\s*(deb|deb-src)\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)")


def normal(uri: str) -> str:
    """A repository's URI as we compare it: http and https are the same repository, and so is a trailing slash."""
    parts = urlsplit(uri)
    if not parts.hostname:
        return uri.rstrip("/")
    port = ":{0}".format(parts.port) if parts.port not in (None, 80, 443) else ""
    return "//{0}{1}{2}".format(parts.hostname, port, parts.path.rstrip("/"))


def same(entry: str, uri: str) -> bool:
    """Whether an entry's URI is that repository. apt puts a name for ``$(ARCH)``, as NVIDIA's own entries have it."""
    if "$(ARCH)" not in entry:
        return normal(entry) == uri
    pattern = re.escape(normal(entry)).replace(re.escape("$(ARCH)"), "[a-z0-9-]+")
    return re.match(pattern + "$", uri) is not None


def switch_off(text: str, deb822: bool, uri: str, suite: str) -> str:
    """The text of a sources file without the entries of that repository and suite; unchanged text if there are none."""
    wanted = (normal(uri), suite.rstrip("/"))
    return _deb822(text, wanted) if deb822 else _one_line(text, wanted)


def _one_line(text: str, wanted: tuple[Any, ...]) -> str:
    lines = text.splitlines(True)
    for number, line in enumerate(lines):
        found = ONE_LINE.match(line)
        if found and same(found.group(2), wanted[0]) and found.group(3).rstrip("/") == wanted[1]:
            lines[number] = NOTE + line.lstrip()
    return "".join(lines)


def _deb822(text: str, wanted: tuple[Any, ...]) -> str:
    return "".join(
        part if number % 2 else _stanza(part, wanted)
        for number, part in enumerate(re.split(r"(\n(?:[ \t]*\n)+)", text))
    )


def _stanza(stanza: str, wanted: tuple[Any, ...]) -> str:
    fields = _fields(stanza)
    uris, suites = fields.get("uris", "").split(), fields.get("suites", "").split()
    if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off", "disable", "without"):
        return stanza
    if not any(same(u, wanted[0]) for u in uris) or wanted[1] not in [s.rstrip("/") for s in suites]:
        return stanza
    # Out of several, only ours goes; which of the two lists to shorten is open only if both are long.
    if len(suites) > 1 and len(uris) == 1:
        return _set_field(stanza, "Suites", " ".join(s for s in suites if s.rstrip("/") != wanted[1]))
    if len(uris) > 1 and len(suites) == 1:
        return _set_field(stanza, "URIs", " ".join(u for u in uris if not same(u, wanted[0])))
    if len(uris) > 1:
        others = _set_field(stanza, "URIs", " ".join(u for u in uris if not same(u, wanted[0])))
        rest = _set_field(stanza, "URIs", " ".join(u for u in uris if same(u, wanted[0])))
        rest = _set_field(rest, "Suites", " ".join(s for s in suites if s.rstrip("/") != wanted[1]))
        return others.rstrip("\n") + "\n\n" + rest
    lines = [line for line in stanza.splitlines(True) if not line.lower().startswith("enabled:")]
    return NOTE.rstrip(": ") + "\nEnabled: no\n" + "".join(lines)


def _fields(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t"):
            fields[name] = fields.get(name, "") + " " + line.strip()
        elif ":" in line:
            name, value = line.split(":", 1)
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def _set_field(stanza: str, name: str, value: str) -> str:
    pattern = re.compile(r"^{0}:[^\n]*(?:\n[ \t][^\n]*)*".format(name), re.IGNORECASE | re.MULTILINE)
    return pattern.sub(lambda _found: "{0}: {1}".format(name, value), stanza)
