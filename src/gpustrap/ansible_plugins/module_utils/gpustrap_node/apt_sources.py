"""apt's sources, one-line and deb822, and what apt would stumble over; see sources.list(5)."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from .host import Host

LIST = "/etc/apt/sources.list"
PARTS = "/etc/apt/sources.list.d"
NAME = re.compile(r"^[A-Za-z0-9_.-]+\.(list|sources)\Z")  # apt ignores the others
ONE_LINE = re.compile(r"^(deb|deb-src)\s+(?:\[([^\]]*)\]\s+)?((?:cdrom:\[[^\]]*\]\S*)|\S+)\s+(\S+)\s*(.*)$")
YES = ("yes", "true", "with", "on", "enable", "1")


class Source(NamedTuple):
    """One type, URI and suite of an entry."""

    file: str
    kind: str
    uri: str
    suite: str
    components: tuple[str, ...]
    architectures: tuple[str, ...]
    signed_by: str | None
    enabled: bool

    @property
    def fact(self) -> dict[str, object]:
        """As the controller's schema has it."""
        shown = ("file", "uri", "suite", "components", "signed_by", "enabled")
        return {name: getattr(self, name) for name in shown}


def mask(uri: str) -> str:
    """The URI without the password of its user, which may hold an @ itself."""
    return re.sub(r"^([a-z+]+://[^/@:\s]*):[^/\s]*@", r"\1:***@", uri, flags=re.IGNORECASE)


def normal(uri: str) -> str:
    """Two spellings of one place become equal: letter case of scheme and host, default port, slash at the end."""
    found = re.match(r"^([A-Za-z0-9+.-]+)://([^/]*)(.*)$", uri)
    if not found:
        return uri.rstrip("/")
    scheme, host, path = found.group(1).lower(), found.group(2).lower(), found.group(3)
    port = {"http": ":80", "https": ":443"}.get(scheme)
    if port and host.endswith(port):
        host = host[: -len(port)]
    return "%s://%s%s" % (scheme, host, re.sub(r"/{2,}", "/", path).rstrip("/"))


def parse_one_line(file: str, text: str) -> tuple[list[Source], list[str]]:
    """The entries of a ``.list`` file, and its malformed lines."""
    sources, problems = [], []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        found = ONE_LINE.match(line)
        if not found or (not found.group(4).endswith("/") and not found.group(5).strip()):
            problems.append("%s line %d is malformed: apt reads no sources at all until it is mended" % (file, number))
            continue
        kind, bracket, uri, suite, components = found.groups()
        options = dict(re.findall(r"([A-Za-z-]+)\+?=(\S+)", bracket or ""))
        archs = tuple(options.get("arch", "").split(",")) if options.get("arch") else ()
        parts = tuple(components.split())
        sources.append(Source(file, kind, mask(uri), suite, parts, archs, options.get("signed-by"), True))
    return sources, problems


def parse_deb822(file: str, text: str) -> tuple[list[Source], list[str]]:
    """The entries of a ``.sources`` file, and its incomplete stanzas."""
    sources: list[Source] = []
    problems = []
    for number, fields in enumerate(_stanzas(text), 1):
        uris, suites = fields.get("uris", "").split(), fields.get("suites", "").split()
        kinds, components = fields.get("types", "").split(), tuple(fields.get("components", "").split())
        if not (uris and suites and kinds) or not (components or all(s.endswith("/") for s in suites)):
            problems.append("%s: entry %d lacks Types, URIs, Suites or Components" % (file, number))
            continue
        enabled = fields.get("enabled", "yes").strip().lower() in YES
        archs, key = tuple(fields.get("architectures", "").split()), _signed_by(fields.get("signed-by"))
        sources.extend(
            Source(file, kind, mask(uri), suite, components, archs, key, enabled)
            for kind in kinds
            for uri in uris
            for suite in suites
        )
    return sources, problems


def _stanzas(text: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                found.append(fields)
            fields, last = {}, ""
        elif line[0] in " \t":
            if last:
                fields[last] += "\n" + line.strip()
        else:
            key, _, value = line.partition(":")
            last = key.strip().lower()
            fields[last] = value.strip()
    return found


def _signed_by(value: str | None) -> str | None:
    """A key file or fingerprint as it is; a key inside the entry by a short hash of it."""
    if not value:
        return None
    if "BEGIN PGP" in value:
        return "embedded key %s" % hashlib.sha256("".join(value.split()).encode()).hexdigest()[:12]
    return " ".join(value.split())


def read_sources(host: Host) -> tuple[list[Source], list[str]]:
    """All sources apt would read, in its order, and every problem with them."""
    sources: list[Source] = []
    problems: list[str] = []
    parts = ["%s/%s" % (PARTS, name) for name in host.names(PARTS) if NAME.match(name)]
    for file in [LIST, *parts]:
        text = host.read(file)
        if text is None:
            if host.stat(file, follow=False):
                problems.append("%s cannot be read" % file)
            continue
        parse = parse_deb822 if file.endswith(".sources") else parse_one_line
        found, bad = parse(file, text)
        sources += found
        problems += bad
    return sources, problems + check(sources)


def check(sources: list[Source]) -> list[str]:
    """Conflicting Signed-By, duplicates where nothing conflicts, and discs; of what is enabled."""
    live = [s for s in sources if s.enabled]
    places: dict[tuple[str, str], list[Source]] = {}
    for source in live:
        places.setdefault((normal(source.uri), source.suite.rstrip("/")), []).append(source)
    conflicts = [
        (group[0], other) for group in places.values() for other in group if other.signed_by != group[0].signed_by
    ]
    told = {
        (normal(first.uri), first.suite.rstrip("/")): _conflict(first, other) for first, other in reversed(conflicts)
    }
    discs = [s for s in live if s.uri.startswith("cdrom:")]
    return [
        *(told[place] for place in places if place in told),
        *_duplicates([s for s in live if (normal(s.uri), s.suite.rstrip("/")) not in told]),
        *("%s names a disc (%s): apt-get update fails without it" % (s.file, s.uri) for s in discs),
    ]


def _conflict(one: Source, two: Source) -> str:
    said = (one.uri, one.suite, one.file, one.signed_by or "nothing", two.file, two.signed_by or "nothing")
    return "conflicting Signed-By for %s %s: %s says %s, %s says %s; apt reads no sources until they agree" % said


def _duplicates(sources: list[Source]) -> list[str]:
    """What apt would fetch twice: the same component for the same architecture, be it by http or https."""
    targets: dict[tuple[str, str, str, str], list[Source]] = {}
    for source in sources:
        place = normal(source.uri).replace("https://", "http://", 1)
        for component in source.components or ("",):
            targets.setdefault((source.kind, place, source.suite.rstrip("/"), component), []).append(source)
    twice: dict[tuple[str, str], list[str]] = {}
    for group in targets.values():
        for number, source in enumerate(group):
            earlier = next((s for s in group[:number] if _overlap(s, source)), None)
            if earlier:
                twice.setdefault((source.uri, source.suite), []).extend((earlier.file, source.file))
    told = ((uri, suite, " and ".join(dict.fromkeys(files))) for (uri, suite), files in twice.items())
    return ["%s %s is configured more than once, in %s" % one for one in told]


def _overlap(one: Source, two: Source) -> bool:
    return not one.architectures or not two.architectures or bool(set(one.architectures) & set(two.architectures))
