"""rpm: installed versions of the packages asked for."""

from __future__ import annotations

import re

from .host import Host
from .system import version_key

DNF = ("/usr/bin/dnf", "/usr/bin/dnf5", "/usr/bin/microdnf")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
MAX_ASKED = 1000
QUERY = ("rpm", "-q", "--qf", "%{NAME} %{EVR} %{ARCH}\\n")


def package_facts(host: Host, asked: list[str]) -> dict[str, object]:
    """The installed ones among the packages asked for. What could be installed only dnf knows, who would fetch it."""
    names = [name for name in dict.fromkeys(asked) if NAME.match(name)][:MAX_ASKED]
    if not names:
        return {"kind": "dnf"}
    host.note("dnf: which versions could be installed is not read")
    answer = host.run([*QUERY, *names], timeout=20)
    if answer is None:
        host.note("rpm: could not be run")
    return {"kind": "dnf", "packages": parse_query(answer.stdout if answer else "", names)}


def parse_query(text: str, names: list[str]) -> dict[str, str]:
    """Name asked for -> installed version, with its epoch; the newest of several.

    A name may hold version and architecture, as those of kernels do.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) != 3:  # "package x is not installed" has five
            continue
        name, version, architecture = words
        full = "%s-%s" % (name, version.rpartition(":")[2])
        for key in (name, full, "%s.%s" % (full, architecture)):
            found[key] = max(found.get(key, ""), version, key=version_key)
    return {name: found[name] for name in names if name in found}
