"""The shape of the catalog. Every row says where it was read, when, and how sure we are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import Field

from gpustrap.catalog.row import Row
from gpustrap.catalog.schema_frameworks import UvWheel, Wheel
from gpustrap.catalog.schema_gpu import Architecture, Cuda, DriverBranch, Gpu, IdRange, Library
from gpustrap.catalog.schema_preflight import Preflight
from gpustrap.catalog.schema_stack import (
    CdiSupport,
    ContainerToolkit,
    ControllerPython,
    DriverPackages,
    Repository,
)
from gpustrap.model.base import Frozen

Origin = Literal["distribution", "upstream"]


class Distro(Row):
    """A supported distribution; ``id`` and ``version_id`` are os-release's.

    Attributes:
        aliases: Ids of rebuilds whose packages and kernels are the same; the RHEL family only.
        version_id: Of the RHEL family, only the major version counts.
        nvidia: What NVIDIA calls it in its repositories: ``ubuntu2404``.
        archive: Its own archive, a name in repositories.yml.
        python: Its python3, major and minor.
        glibc: What it has at least, major and minor: wheels for later ones do not load there.
        kernel_ga: The kernel it came with, major and minor; empty where there is only one line of kernels.
        kernel_hwe: What the flavour of its later kernels ends with: ``-hwe-24.04``; empty where there is none.
        kernel_release: A pattern of how ``uname -r`` of its own kernels begins, before the flavour.
        kernel_flavours: Of kernels whose packages a node is asked about: ``generic-hwe-24.04``, ``amd64``.
        prebuilt_for: Those with prebuilt modules, where there is no node to ask.
        docker_packages: What its own docker consists of; empty where it has none.
    """

    id: str
    version_id: str
    codename: str
    name: str
    family: Literal["debian", "redhat"]
    aliases: tuple[str, ...] = ()
    nvidia: str
    archive: str
    python: str
    glibc: str = Field(pattern=r"^2\.\d\d$")
    kernel_ga: str = ""
    kernel_hwe: str = ""
    kernel_release: str = ""
    kernel_flavours: tuple[str, ...] = ()
    prebuilt_for: tuple[str, ...] = ()
    time_sync: str
    docker_packages: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """E.g. ``debian 13``."""
        return f"{self.id} {self.version_id}"

    @property
    def row(self) -> str:
        """How the source of a choice names this row."""
        return f"catalog: distros, {self.key}"

    def is_called(self, os_id: str, version_id: str) -> bool:
        """Whether os-release's id and version mean this row."""
        version = version_id.partition(".")[0] if self.family == "redhat" else version_id
        return os_id in {self.id, *self.aliases} and version == self.version_id

    def fill(self, template: str) -> str:
        """Put this distribution's id, version_id and codename into a template."""
        return template.format(id=self.id, version_id=self.version_id, codename=self.codename)


class DockerUpstream(Row):
    """Docker's own repository. Its path depends on the distribution, so it is no row of repositories.yml."""

    repository: str
    path: str
    key_path: str
    fingerprints: tuple[str, ...] = Field(min_length=1)
    components: tuple[str, ...]
    retention: Literal["kept", "superseded"]
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
    """docker, in containers.yml; ``rpm`` is docker's own repository for dnf."""

    upstream: DockerUpstream
    rpm: DockerUpstream
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


@dataclass(frozen=True)
class Catalog:
    """Everything the resolver knows about the world.

    Attributes:
        digest: ``sha256:…`` of the files it was read from.
    """

    architectures: tuple[Architecture, ...]
    id_ranges: tuple[IdRange, ...]
    gpus: tuple[Gpu, ...]
    drivers: tuple[DriverBranch, ...]
    cuda: Cuda
    libraries: tuple[Library, ...]
    distros: tuple[Distro, ...]
    repositories: tuple[Repository, ...]
    driver_packages: tuple[DriverPackages, ...]
    docker: Docker
    container_toolkit: ContainerToolkit
    cdi: tuple[CdiSupport, ...]
    wheels: tuple[Wheel, ...]
    conda_builds: tuple[Wheel, ...]
    uv: tuple[UvWheel, ...]
    controllers: tuple[ControllerPython, ...]
    conda: tuple[CondaInstaller, ...]
    server: Server
    preflight: Preflight
    digest: str

    @cached_property
    def _boards_by_id(self) -> dict[str, tuple[Gpu, ...]]:
        ids = {number for gpu in self.gpus for number in gpu.ids}
        return {number: tuple(g for g in self.gpus if number in g.ids) for number in ids}

    @cached_property
    def _driver_by_branch(self) -> dict[str, DriverBranch]:
        return {row.branch: row for row in self.drivers}

    def distro(self, os_id: str, version_id: str) -> Distro | None:
        """The row of a distribution."""
        return next((d for d in self.distros if d.is_called(os_id, version_id)), None)

    def architecture(self, name: str) -> Architecture:
        """A GPU generation that another row names.

        Raises:
            KeyError: The catalog is broken; a guard test holds every reference.
        """
        return next(a for a in self.architectures if a.name == name)

    def boards(self, device: str, subsystem: str = "") -> tuple[Gpu, ...]:
        """The boards a PCI device id may be: several where an id is shared and the subsystem does not tell."""
        found = self._boards_by_id.get(device, ())
        exact = tuple(g for g in found if g.subsystem == subsystem)
        return exact or tuple(g for g in found if not g.subsystem) or found

    def id_range(self, device: str) -> IdRange | None:
        """The documented range of an id that no board has."""
        return next((r for r in self.id_ranges if r.first <= device <= r.last), None)

    def driver(self, branch: str) -> DriverBranch | None:
        """The row of a driver branch."""
        return self._driver_by_branch.get(branch)

    def repository(self, name: str, architecture: str) -> Repository | None:
        """The row of a repository for a machine architecture."""
        return next((r for r in self.repositories if r.name == name and r.architecture in {"", architecture}), None)

    def installer(self, distribution: str, architecture: str) -> CondaInstaller | None:
        """The row of a conda installer."""
        wanted = (distribution, architecture)
        return next((c for c in self.conda if (c.distribution, c.architecture) == wanted), None)

    def packages(self) -> tuple[str, ...]:
        """Every package a plan may ask a node about, whatever its distribution, sorted."""
        names = {name for distro in (None, *self.distros) for name in self.packages_for(distro)}
        return tuple(sorted(names))

    def packages_for(self, distro: Distro | None) -> tuple[str, ...]:
        """Every package a plan may ask a node of a distribution about, sorted; the node fills in ``{kernel}``.

        Prebuilt modules are asked about for every flavour of kernels and for exactly the running one.

        Args:
            distro: None where it is not known: only what concerns every distribution.
        """
        names = {*self.docker.upstream.packages, *self.docker.conflicts.distribution, *self.docker.conflicts.upstream}
        names.update(self.server.base_packages.packages, self.server.time_sync.packages, ("unattended-upgrades",))
        names.update(self.container_toolkit.packages, self._cuda_packages())
        if distro:
            names.update(distro.docker_packages, (distro.time_sync,))
            for row in self.driver_packages:
                if distro.key in row.distros:
                    names.update(row.names((*distro.kernel_flavours, "{kernel}")))
        return tuple(sorted(names))

    def _cuda_packages(self) -> set[str]:
        """Of every toolkit, and of the libraries for it."""
        names = set()
        for toolkit in self.cuda.toolkits:
            major, _, minor = toolkit.version.partition(".")
            names.add(self.cuda.package.format(major=major, minor=minor))
            for library in self.libraries:
                if library.cuda_major == major:
                    names.update(name.format(cuda=toolkit.version, major=major) for name in library.debs)
        return names
