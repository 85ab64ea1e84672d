"""apt: sources, candidates of the packages asked for, and what upgrades itself behind our back."""

from __future__ import annotations

import re

from . import apt_lists, apt_sources, dpkg
from .host import Host

PACKAGE = re.compile(r"^[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?\Z")
MAX_ASKED = 1000
NO = ("", "0", "no", "false", "off", "disable", "without")
TIMER = "apt-daily-upgrade.timer"


def package_facts(host: Host, asked: list[str], known: dict[str, dpkg.Package] | None) -> dict[str, object]:
    """The package manager's health, and what it knows of the packages asked for."""
    if known is None:
        dnf = any(host.exists(path) for path in ("/usr/bin/dnf", "/usr/bin/dnf5", "/usr/bin/microdnf"))
        return {"kind": "dnf" if dnf else "unknown"}
    sources, problems = apt_sources.read_sources(host)
    names = [name for name in dict.fromkeys(asked) if PACKAGE.match(name)][:MAX_ASKED]
    answer = None
    if names:
        with apt_lists.fresh(host) as options:
            answer = host.run(["apt-cache", *options, "policy", *names], timeout=75)
    if names and (answer is None or answer.rc != 0):
        host.note("apt-cache policy: %s" % (answer.stderr.strip()[:500] if answer else "could not be run"))
    candidates = parse_policy(answer.stdout if answer and answer.rc == 0 else "")
    return {
        "kind": "apt",
        **dpkg.health(host, known),
        "sources": [s.fact for s in sources if s.kind == "deb"],
        "source_problems": problems,
        "packages": {n: known[n].version for n in names if n in known and known[n].present},
        "candidates": {name: version for name, (version, _) in candidates.items()},
        "candidate_origins": {name: origin for name, (_, origin) in candidates.items() if origin},
    }


def parse_policy(text: str) -> dict[str, tuple[str, str]]:
    """Package -> (candidate, archive it is from), from the output of ``apt-cache policy NAME...``."""
    found = {}
    for block in re.split(r"^(?=\S+:$)", text, flags=re.MULTILINE):
        name = block.split("\n", 1)[0].rstrip(":")
        candidate = re.search(r"^  Candidate: (\S+)$", block, re.MULTILINE)
        if not candidate or candidate.group(1) == "(none)":
            continue
        version = candidate.group(1)
        at = re.search(r"^ (?:\*\*\*|   ) %s -?\d+\n((?: {8}.*\n?)+)" % re.escape(version), block, re.MULTILINE)
        rows = [row.split() for row in at.group(1).splitlines()] if at else []
        archives = [" ".join(row[1:3]) for row in rows if len(row) > 2]
        found[name] = (version, apt_sources.mask(archives[0]) if archives else "")
    return found


def parse_config(text: str) -> dict[str, list[str]]:
    """``apt-config dump``: lower-cased key without the list's colons -> its values."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r'^(\S+) "(.*)";$', text, re.MULTILINE):
        found.setdefault(key.rstrip(":").lower(), []).append(value)
    return found


def unattended(host: Host, known: dict[str, dpkg.Package] | None) -> dict[str, object]:
    """The policy of unattended-upgrades."""
    package = (known or {}).get("unattended-upgrades")
    installed = package is not None and package.present
    answer = host.run(["apt-config", "dump"]) if known is not None else None
    if answer is None or answer.rc != 0:
        return {"installed": installed, "enabled": None if installed else False}
    config = parse_config(answer.stdout)

    def value(key: str, default: str) -> str:
        return (config.get(key.lower()) or [default])[-1]

    def entries(*keys: str) -> list[str]:
        return [entry for key in keys for entry in config.get("unattended-upgrade::" + key, []) if entry]

    periodic = value("APT::Periodic::Enable", "1"), value("APT::Periodic::Unattended-Upgrade", "0")
    timed = host.readlink("/etc/systemd/system/" + TIMER) != "/dev/null"
    on = installed and timed and all(word.lower() not in NO for word in periodic)
    return {
        "installed": installed,
        "enabled": on,
        "origins": entries("allowed-origins", "origins-pattern"),
        "blacklist": entries("package-blacklist"),
        "automatic_reboot": value("Unattended-Upgrade::Automatic-Reboot", "false").lower() not in NO,
    }
