"""The driver packages a node has already."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpustrap.catalog.schema_gpu import Flavour
from gpustrap.catalog.schema_stack import DriverOrigin
from gpustrap.model.facts import Facts

PACKAGE = "package "
# 5:580.95.05-0ubuntu1 -> 580.95.05
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d+){1,2})(?![\d.])")
# Packages that are a driver as a whole, not one of its libraries.
_WHOLE = re.compile(
    r"nvidia-(driver|headless|open)(-no-dkms)?(-\d{3})?(-server)?(-open)?|cuda-drivers(-\d{3})?"
    r"|nvidia-driver-cuda|nvidia-(open-)?kernel(-open)?-dkms|kmod-nvidia-\w+-dkms"
)
_OPEN = re.compile(r"(^|-)open(-|$)")
NVIDIA_HOST = "developer.download.nvidia.com"


def upstream_version(package_version: str) -> str:
    """NVIDIA's own version in that of a package; empty where there is none."""
    found = _UPSTREAM.match(package_version)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Installed:
    """A driver that came in packages.

    Attributes:
        names: Its packages that are a driver as a whole.
        package_version: Theirs.
        origin: Whose they are; None where the node cannot say.
    """

    names: tuple[str, ...]
    package_version: str
    flavour: Flavour
    origin: DriverOrigin | None

    @property
    def version(self) -> str:
        """``580.95.05``."""
        return upstream_version(self.package_version)

    @property
    def branch(self) -> str:
        """``580``."""
        return self.version.partition(".")[0]

    @property
    def words(self) -> str:
        """``nvidia-driver-580-open 580.95.05-0ubuntu1``."""
        return f"{' '.join(self.names)} {self.package_version}"


def installed_driver(facts: Facts, mirror: str | None) -> Installed | None:
    """The node's driver, if it is one driver that came in packages; an installer's or a mixture is none.

    Args:
        facts: The node.
        mirror: Base URL of the user's mirror of NVIDIA's repositories.
    """
    rows = [i for i in facts.installs if i.what == "nvidia-driver"]
    if any(i.origin == "runfile" for i in rows):
        return None
    whole = {
        i.origin.removeprefix(PACKAGE): i.version
        for i in rows
        if i.origin.startswith(PACKAGE) and _WHOLE.fullmatch(i.origin.removeprefix(PACKAGE))
    }
    versions = {version for version in whole.values() if upstream_version(version)}
    if len(versions) != 1:
        return None
    names = tuple(sorted(whole))
    return Installed(names, versions.pop(), _flavour(facts, names), _origin(facts, names, mirror))


def _flavour(facts: Facts, names: tuple[str, ...]) -> Flavour:
    """By the names; Debian has the flavour in another package, and only the loaded module says it."""
    others = (i.origin.removeprefix(PACKAGE) for i in facts.installs if i.what == "nvidia-driver")
    if any(_OPEN.search(name) for name in (*names, *others)):
        return "open"
    return facts.nvidia.flavour or "proprietary"


def _origin(facts: Facts, names: tuple[str, ...], mirror: str | None) -> DriverOrigin | None:
    if any("-server" in name for name in names):
        return "distribution"  # NVIDIA's repository has no such names
    archives = [
        facts.package_manager.installed_origins[n] for n in names if n in facts.package_manager.installed_origins
    ]
    if not archives:
        return None
    return "nvidia" if any(is_nvidias(archive, mirror) for archive in archives) else "distribution"


def is_nvidias(archive: str, mirror: str | None) -> bool:
    """Whether an archive, as apt names it, is NVIDIA's repository or the user's mirror of it."""
    return NVIDIA_HOST in archive or bool(mirror and archive.startswith(mirror))
