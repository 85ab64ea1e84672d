"""apt: sources, candidates of the packages asked for, and what upgrades itself behind our back."""

from __future__ import annotations

import re
from typing import NamedTuple

from . import apt_lists, apt_sources, dpkg
from .host import Completed, Host

PACKAGE = re.compile(r"^[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?\Z")
MAX_ASKED = 1000
MAX_VERSIONS = 100  # NVIDIA's repository keeps every version of every branch under one name
VERSION = re.compile(r"^ (\*\*\*|   ) (\S+) -?\d+(?: \(.*\))?$")  # "(phased 20%)"
NO = ("", "0", "no", "false", "off", "disable", "without")
TIMER = "apt-daily-upgrade.timer"


class Policy(NamedTuple):
    """What ``apt-cache policy`` says of a package; archives without their passwords.

    Attributes:
        candidate: The version apt would install; empty if none.
        origin: The archive that is from; empty where only dpkg knows it.
        versions: What archives have, newest first.
        installed_origin: The archive that has the installed version; empty if none has.
    """

    candidate: str
    origin: str
    versions: list[str]
    installed_origin: str


def package_facts(host: Host, asked: list[str], known: dict[str, dpkg.Package]) -> dict[str, object]:
    """The package manager's health, and what it knows of the packages asked for."""
    sources, problems = apt_sources.read_sources(host)
    names = [name for name in dict.fromkeys(asked) if PACKAGE.match(name)][:MAX_ASKED]
    policies = _policies(host, names) if names else {}
    return {
        "kind": "apt",
        **dpkg.health(host, known),
        "sources": [s.fact for s in sources if s.kind == "deb"],
        "source_problems": problems,
        "packages": {n: known[n].version for n in names if n in known and known[n].present},
        "candidates": {name: policy.candidate for name, policy in policies.items() if policy.candidate},
        "candidate_origins": {name: policy.origin for name, policy in policies.items() if policy.origin},
        "versions": {name: policy.versions for name, policy in policies.items() if policy.versions},
        "installed_origins": {n: policy.installed_origin for n, policy in policies.items() if policy.installed_origin},
    }


def _policies(host: Host, names: list[str]) -> dict[str, Policy]:
    """What apt knows of packages.

    Of a name with a dot or a plus that apt does not know, it makes a regular expression and searches all packages
    for it, a fifth of a second each. So it is first asked, once, which names it knows.
    """
    with apt_lists.fresh(host) as options:
        all_names = host.run(["apt-cache", *options, "pkgnames"], timeout=30)
        if all_names and all_names.rc == 0:
            known = set(all_names.stdout.split())
            names = [name for name in names if name.partition(":")[0] in known]
        answer = host.run(["apt-cache", *options, "policy", *names], timeout=75) if names else Completed(0, "", "")
    if answer is None or answer.rc != 0:
        host.note("apt-cache policy: %s" % (answer.stderr.strip()[:500] if answer else "could not be run"))
        return {}
    return parse_policy(answer.stdout)


def parse_policy(text: str) -> dict[str, Policy]:
    """The output of ``apt-cache policy NAME...``, by package."""
    found = {}
    for block in re.split(r"^(?=\S+:$)", text, flags=re.MULTILINE):
        name, _, rest = block.partition("\n")
        said = re.search(r"^  Candidate: (\S+)$", rest, re.MULTILINE)
        candidate = said.group(1) if said and said.group(1) != "(none)" else ""
        archives, installed = _version_table(rest)
        versions = [version for version, at in archives.items() if at][:MAX_VERSIONS]
        if candidate or versions:
            origin = archives.get(candidate, "")
            found[name.rstrip(":")] = Policy(candidate, origin, versions, archives.get(installed, ""))
    return found


def _version_table(text: str) -> tuple[dict[str, str], str]:
    """Each version, newest first, with the first archive that has it (empty: only dpkg knows it), and the installed."""
    archives: dict[str, str] = {}
    version, installed = "", ""
    for line in text.split("\n"):
        head = VERSION.match(line)
        if head:
            version = head.group(2)
            archives.setdefault(version, "")
            installed = version if head.group(1) == "***" else installed
            continue
        row = line.split()  # 500 http://a.example/debian trixie/main amd64 Packages; a flat repository has no suite
        if version and len(row) > 2 and row[-1] == "Packages" and not archives[version]:
            archives[version] = apt_sources.mask(" ".join(row[1:-1][:2]))
    return archives, installed


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
