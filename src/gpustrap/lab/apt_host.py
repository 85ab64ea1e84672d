"""This machine's apt configuration, as far as nodes need it: where Debian comes from, and how to get there."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
CERTIFICATES = Path("/usr/local/share/ca-certificates")
_FORMAT = "$(REPO_URI)|$(RELEASE)|$(ORIGIN)|$(LABEL)"
_OPTIONS = ("Acquire::Check-Valid-Until", "Acquire::Check-Date", "Acquire::http::Proxy", "Acquire::https::Proxy")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_LOOPBACK = ("localhost", "127.", "::1")


@dataclass(frozen=True, slots=True)
class Archive:
    """Where this machine gets Debian from.

    Attributes:
        main: URI of the archive.
        updates: The machine follows ``<release>-updates``.
        security: URI of the security archive, if the machine has one.
    """

    main: str
    updates: bool
    security: str | None

    def sources(self, codename: str) -> str:
        """The deb822 sources of a release."""
        suites = [codename, f"{codename}-updates"] if self.updates else [codename]
        stanzas = [(self.main, " ".join(suites))]
        if self.security:
            stanzas.append((self.security, f"{codename}-security"))
        return "\n".join(
            f"Types: deb\nURIs: {uri}\nSuites: {names}\nComponents: main\nSigned-By: {KEYRING}\n"
            for uri, names in stanzas
        )


def parse_targets(listing: str) -> Archive | None:
    """Find the Debian archive in apt's own list of index targets, told by the origin its Release files state.

    Args:
        listing: Lines ``uri|release|origin|label``.
    """
    main: dict[str, set[str]] = {}
    security: list[str] = []
    for line in listing.splitlines():
        uri, release, origin, label = line.split("|")
        if origin != "Debian" or not uri.startswith(("http://", "https://")):
            continue
        if label == "Debian-Security":
            security.append(uri)
        elif label == "Debian":
            main.setdefault(uri, set()).add(release)
    if not main:
        return None
    return Archive(
        main=next(iter(main)),
        updates=any(release.endswith("-updates") for names in main.values() for release in names),
        security=security[0] if security else None,
    )


@cache
def find_archive() -> Archive | None:
    """The Debian archive this machine uses; None where it uses none (then mmdebstrap's own default serves)."""
    archive = parse_targets(_targets())
    if archive is None and "ID=debian" in _os_release():  # its lists are empty: fill some of our own
        with tempfile.TemporaryDirectory(prefix="gpustrap-apt-") as directory:
            Path(directory).chmod(0o755)
            options = ("-o", f"Dir::State::Lists={directory}")
            subprocess.run(("apt-get", "-q", "update", *options), capture_output=True, timeout=300, check=False)
            archive = parse_targets(_targets(*options))
    return archive


def _targets(*options: str) -> str:
    command = ("apt-get", "indextargets", *options, "--format", _FORMAT, "Created-By: Packages")
    return _output(command)


def _os_release() -> list[str]:
    return Path("/etc/os-release").read_text(encoding="utf-8").splitlines()


def _output(command: tuple[str, ...]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except FileNotFoundError:  # not a Debian relative
        return ""


@cache
def apt_options() -> tuple[str, ...]:
    """Lines for the node's apt.conf: validity checks and proxies as this machine has them."""
    lines = _output(("apt-config", "dump", "--format", "%f %v%n")).splitlines()
    options = [line.partition(" ")[::2] for line in lines if line.startswith(_OPTIONS)]
    return tuple(f'{name} "{value}";' for name, value in options if value and not _is_loopback(value))


def proxies(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """``NAME=value`` of this machine's proxy variables; a proxy on loopback is of no use in a node."""
    found = [(name, environment.get(name, "")) for name in _PROXIES]
    return tuple(f"{n}={v}" for n, v in found if v and (n.lower() == "no_proxy" or not _is_loopback(v)))


def certificates(directory: Path = CERTIFICATES) -> tuple[Path, ...]:
    """The CA certificates this machine trusts beyond its distribution's."""
    return tuple(sorted(directory.rglob("*.crt")))


def _is_loopback(url: str) -> bool:
    return (urlsplit(url).hostname or "").startswith(_LOOPBACK)
