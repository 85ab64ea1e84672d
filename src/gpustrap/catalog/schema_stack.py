"""The shape of what is known about repositories and packages of the GPU stack."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpustrap.catalog.row import Row
from gpustrap.catalog.schema_gpu import Flavour

Module = Literal["prebuilt", "dkms"]
DriverOrigin = Literal["distribution", "nvidia"]


class Repository(Row):
    """A package repository.

    Attributes:
        name: How other rows name it: ``ubuntu2404``, ``container-toolkit``, ``debian-archive``, ``ubuntu-archive``.
        architecture: ``uname -m`` it is for; empty for all.
        base: Its host and first path, which a mirror replaces; a URL without a trailing slash. Empty where the node has
            it already, at a mirror of its own.
        path: The rest, a template over the distribution's ``id``, ``version_id``, ``codename``.
        suite: Of apt; ``/`` for a flat repository.
        components: Of apt.
        key: Path of the key below base; empty where a keyring package carries it or the system has it.
        keyring: Path of the keyring package below base, where the key itself has no known path.
        sha256: Of that key or keyring package, where it is known.
        fingerprints: Primary keys; empty where not known (then sha256 must be) or where the system has them.
        retention: Whether superseded versions stay.
        snapshot: A public archive of its past, with ``{time}``.
    """

    name: str
    kind: Literal["apt", "dnf"]
    architecture: str = ""
    base: str
    path: str = ""
    suite: str = ""
    components: tuple[str, ...] = ()
    key: str = ""
    keyring: str = ""
    sha256: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    fingerprints: tuple[str, ...] = ()
    retention: Literal["kept", "superseded"]
    snapshot: str = ""


class DriverPackages(Row):
    """What a driver consists of, for an origin on some distributions; one row for each way in which names differ.

    Templates know ``branch`` (580), ``version`` (580.178.04), ``kernel`` (uname -r) and ``kernel_flavour`` (generic,
    generic-hwe-24.04, amd64).

    Attributes:
        origin: Whose packages.
        distros: Keys of distros.yml, e.g. ``ubuntu 24.04``.
        branches: Which branches these names are right for.
        flavour: Of the kernel module.
        module: ``prebuilt`` and signed by the distribution, or built on the node by ``dkms``.
        packages: Versioned together, at the driver's version.
        kernel_packages: What the module needs for the kernel: headers, or the prebuilt modules' metapackage. Not at the
            driver's version.
        leading: The one of ``packages`` whose candidate on the node tells the version.
        version: The package version, a template over ``version``; empty where only the node's package manager knows.
        seen: The newest versions that were read in this origin, one for a branch.
        fabric_manager: Names of its packages, at the driver's version; empty where there is none.
        subnet_manager: What NVLink 5 boards need besides, at versions of its own.
        subnet_library: What that needs at the driver's version; empty where there is none.
        imex: Package of the IMEX daemon; empty where there is none.
        only_kept: Nobody gets these anew: they stay where a node has them, e.g. a desktop's packages.
        pin: How it is kept from moving: ``hold``, our apt ``preferences``, or dnf's ``versionlock``.
        repository: A name in repositories.yml.
        components: Of the distribution's archive that must be switched on.
        stream: Of dnf's module, a template; empty without modules.
        kernel_before: The first kernel (release and ABI) of the distribution that its modules were seen not to build
            for; empty: none known.
        kernel_source: Where that is known from.
        size: Bytes on disk.
    """

    origin: DriverOrigin
    distros: tuple[str, ...] = Field(min_length=1)
    branches: tuple[str, ...] = Field(min_length=1)
    flavour: Flavour
    module: Module
    packages: tuple[str, ...] = Field(min_length=1)
    kernel_packages: tuple[str, ...] = ()
    leading: str
    version: str = ""
    seen: tuple[str, ...] = ()
    fabric_manager: tuple[str, ...] = ()
    subnet_manager: tuple[str, ...] = ()
    subnet_library: str = ""
    imex: str = ""
    only_kept: bool = False
    pin: Literal["hold", "preferences", "versionlock"]
    repository: str
    components: tuple[str, ...] = ()
    stream: str = ""
    kernel_before: str = Field("", pattern=r"^(\d+\.\d+[0-9a-z.+-]*)?$")
    kernel_source: str = ""
    size: int = Field(gt=0)

    @property
    def row(self) -> str:
        """How the source of a choice names this row."""
        branches, distros = "/".join(self.branches), ", ".join(self.distros)
        kept = f" ({self.leading})" if self.only_kept else ""
        return f"catalog: packages, {self.origin} {branches} {self.flavour} {self.module}{kept} on {distros}"

    def seen_of(self, branch: str) -> str:
        """The newest version of a branch that was read in this origin; empty where none was."""
        return next((version for version in self.seen if version.partition(".")[0] == branch), "")

    def names(self, kernel_flavours: tuple[str, ...]) -> set[str]:
        """Every package it may mean, for any of its branches and any of these kernels; ``{kernel}`` is left in."""
        templates = (
            *self.packages,
            *self.kernel_packages,
            *self.fabric_manager,
            *self.subnet_manager,
            self.subnet_library,
            self.imex,
            self.leading,
        )
        return {
            template.format(branch=branch, kernel="{kernel}", kernel_flavour=flavour)
            for template in templates
            if template
            for branch in self.branches
            for flavour in kernel_flavours or ("",)
        }


class ContainerToolkit(Row):
    """nvidia-container-toolkit.

    Attributes:
        packages: All at one version.
        repository: Of apt, a name in repositories.yml.
        rpm_repository: Of dnf.
        cdi_spec: Version of the CDI spec it writes.
    """

    version: str
    rpm_version: str
    packages: tuple[str, ...] = Field(min_length=1)
    repository: str
    rpm_repository: str
    cdi_spec: str


class CdiSupport(Row):
    """From which versions on container engines understand a version of the CDI spec.

    Attributes:
        spec: The version of the spec.
        docker_min: The first docker that reads it.
        docker_default: The first docker in which CDI is on without ``features.cdi``.
        podman_min: A podman that is known to read it; older ones are warned of.
    """

    spec: str
    docker_min: str
    docker_default: str
    podman_min: str


class ControllerPython(Row):
    """The newest Python of a node that a release of ansible-core can work with.

    Attributes:
        ansible_core: The release, e.g. ``2.19``.
        controller_python: The oldest Python it runs on itself.
    """

    ansible_core: str
    node_python_max: str
    controller_python: str = ""
