"""The driver packages a node has already, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpustrap.resolve.gpu.candidates import Candidate, fill, kernel_packages
from gpustrap.resolve.parts import Inputs

PACKAGE = "package "  # how the origin of an install begins
# 5:580.95.05-0ubuntu1 -> 580.95.05
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d+){1,2})(?![\d.])")
NVIDIA_HOST = "developer.download.nvidia.com"
_DKMS = re.compile(r"nvidia.*(?<!no-)dkms")  # nvidia-headless-no-dkms builds nothing


def upstream_version(package_version: str) -> str:
    """NVIDIA's own version in that of a package; empty where there is none."""
    found = _UPSTREAM.match(package_version)
    return found[1] if found else ""


def is_nvidias(archive: str, mirror: str | None) -> bool:
    """Whether an archive, as apt names it, is NVIDIA's repository or the user's mirror of it."""
    return NVIDIA_HOST in archive or bool(mirror and archive.startswith(mirror))


def whose(inputs: Inputs, archive: str) -> str:
    """``nvidia``, ``distribution``, or the name of another repository with drivers."""
    for row in inputs.catalog.preflight.driver_repositories:
        if row.in_uri in archive:
            return row.name
    return "nvidia" if is_nvidias(archive, inputs.request.nvidia_repository) else "distribution"


@dataclass(frozen=True, slots=True)
class Installed:
    """A driver that came in packages which the catalog knows.

    Attributes:
        candidate: What it is; it may be unfit.
        names: Those of its packages that are there.
        package_version: Theirs.
        modules: How many packages of its prebuilt modules are there.
    """

    candidate: Candidate
    names: tuple[str, ...]
    package_version: str
    modules: int = 0

    @property
    def version(self) -> str:
        """``580.95.05``."""
        return upstream_version(self.package_version)

    @property
    def words(self) -> str:
        """``nvidia-driver-580-open 580.95.05-0ubuntu1``."""
        return f"{' '.join(self.names)} {self.package_version}"


def installed_driver(inputs: Inputs, every: Iterable[Candidate]) -> Installed | None:
    """The candidate whose packages are on the node, with the most of them; none beside what an installer left."""
    if any(i.what == "nvidia-driver" and i.origin == "runfile" for i in inputs.facts.installs):
        return None
    there = inputs.facts.packages_there
    found = [one for candidate in every if (one := _installed(inputs, candidate, there))]
    return max(found, key=lambda one: (len(one.names) + one.modules, not one.candidate.unfit), default=None)


def _installed(inputs: Inputs, candidate: Candidate, there: dict[str, str]) -> Installed | None:
    row, branch = candidate.packages, candidate.branch
    leading = fill(inputs, row.leading, branch)
    version = there.get(leading, "")
    if upstream_version(version).partition(".")[0] != branch.branch:
        return None
    archive = inputs.facts.package_manager.installed_origins.get(leading, "")
    if archive and whose(inputs, archive) != row.origin:
        return None
    names = tuple(fill(inputs, name, branch, upstream_version(version)) for name in row.packages)
    built = {name for name in there if _DKMS.search(name)}
    if not {name for name in names if _DKMS.search(name)} <= built or (row.module == "prebuilt" and built):
        return None
    modules = sum(name in there for name in kernel_packages(inputs, row, branch)) if row.module == "prebuilt" else 0
    return Installed(candidate, tuple(name for name in names if name in there), version, modules)
