"""The shape of the catalog. Every row says where it was read, when, and how sure we are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from gpustrap.model.base import Frozen

Confidence = Literal["verified", "recalled"]
Origin = Literal["distribution", "upstream"]


class Row(Frozen):
    """What every row has."""

    source: str = Field(min_length=10)
    checked: str = Field(pattern=r"^20\d\d-\d\d-\d\d$")
    confidence: Confidence


class Distro(Row):
    """A supported distribution; ``id`` and ``version_id`` are os-release's."""

    id: str
    version_id: str
    codename: str
    name: str
    time_sync: str
    docker_packages: tuple[str, ...] = Field(min_length=1)

    @property
    def key(self) -> str:
        """E.g. ``debian 13``."""
        return f"{self.id} {self.version_id}"

    @property
    def row(self) -> str:
        """How the source of a choice names this row."""
        return f"catalog: distros, {self.key}"

    def fill(self, template: str) -> str:
        """Put this distribution's id, version_id and codename into a template."""
        return template.format(id=self.id, version_id=self.version_id, codename=self.codename)


class DockerUpstream(Row):
    """Docker's own repository."""

    repository: str
    path: str
    key_path: str
    fingerprints: tuple[str, ...] = Field(min_length=1)
    components: tuple[str, ...]
    packages: dict[str, str] = Field(description="name -> version, a template over a Distro")
    seen_on: tuple[str, ...] = Field(description="distributions where exactly these versions were read")


class DockerConflicts(Row):
    """Packages that must not be installed beside docker of an origin."""

    distribution: tuple[str, ...]
    upstream: tuple[str, ...]

    def of(self, origin: Origin) -> tuple[str, ...]:
        """Those of one origin."""
        return self.upstream if origin == "upstream" else self.distribution


class Docker(Frozen):
    """docker.yml."""

    upstream: DockerUpstream
    conflicts: DockerConflicts


class CondaInstaller(Row):
    """An installer; an empty url, version or sha256 is not known."""

    distribution: Literal["miniforge", "miniconda"]
    architecture: str
    version: str
    url: str
    sha256: str = Field(pattern=r"^([0-9a-f]{64})?$")

    @property
    def row(self) -> str:
        """How the source of a choice names this row."""
        return f"catalog: conda, {self.distribution} {self.architecture}"


class Packages(Row):
    """A list of packages."""

    packages: tuple[str, ...]


class Architectures(Row):
    """How ``uname -m`` and dpkg name an architecture."""

    names: dict[str, str]


class Server(Frozen):
    """server.yml."""

    base_packages: Packages
    time_sync: Packages
    architectures: Architectures


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything the resolver knows about the world.

    Attributes:
        digest: ``sha256:…`` of the files it was read from.
    """

    distros: tuple[Distro, ...]
    docker: Docker
    conda: tuple[CondaInstaller, ...]
    server: Server
    digest: str

    def distro(self, os_id: str, version_id: str) -> Distro | None:
        """The row of a distribution."""
        return next((d for d in self.distros if (d.id, d.version_id) == (os_id, version_id)), None)

    def installer(self, distribution: str, architecture: str) -> CondaInstaller | None:
        """The row of a conda installer."""
        wanted = (distribution, architecture)
        return next((c for c in self.conda if (c.distribution, c.architecture) == wanted), None)

    def packages(self) -> tuple[str, ...]:
        """Every package a plan may ask a node about, sorted."""
        names = {*self.docker.upstream.packages, *self.docker.conflicts.distribution, *self.docker.conflicts.upstream}
        names.update(self.server.base_packages.packages, self.server.time_sync.packages, ("unattended-upgrades",))
        names.update(name for distro in self.distros for name in (*distro.docker_packages, distro.time_sync))
        return tuple(sorted(names))
