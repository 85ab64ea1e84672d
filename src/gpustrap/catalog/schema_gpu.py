"""The shape of what is known about GPUs, driver branches, CUDA toolkits and their libraries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpustrap.catalog.row import Row

Flavour = Literal["open", "proprietary"]

CAPABILITY = r"^\d{1,2}\.\d$"
BRANCH = r"^\d{3}$"
DEVICE = r"^[0-9a-f]{4}$"

Capability = Annotated[str, Field(pattern=CAPABILITY)]
Device = Annotated[str, Field(pattern=DEVICE)]


class Architecture(Row):
    """A GPU generation, and what drives it.

    Attributes:
        driver_min: The first branch of the catalog that drives it; empty where every one does.
        driver_max: The last one; empty where the newest does.
        flavours: Kernel module flavours that drive it.
        open_only_on: Machine architectures (``uname -m``) on which only the open flavour does.
    """

    name: str
    compute_capabilities: tuple[Capability, ...] = Field(min_length=1)
    driver_min: str = Field("", pattern=r"^(\d{3})?$")
    driver_max: str = Field("", pattern=r"^(\d{3})?$")
    flavours: tuple[Flavour, ...] = Field(min_length=1)
    open_only_on: tuple[str, ...] = ()


class IdRange(Row):
    """PCI device ids, both ends included, that belong to some generations: all that is known of an unlisted id."""

    first: Device
    last: Device
    architectures: tuple[str, ...] = Field(min_length=1)


class Gpu(Row):
    """A board.

    Attributes:
        ids: PCI device ids below vendor 10de, lower case.
        subsystem: PCI subsystem device id, where only that tells it from another board; else empty.
        driver_min: Where it needs a later branch than its architecture does.
        vram_gib: Memory of one GPU, in GiB as sold.
        pcie_generation: Of the card itself; 0 where it is not known.
        pcie_width: Lanes of the card itself; 0 where it is not known.
        nvlink: ``none``, or what NVLink it has, e.g. ``NVLink4 900 GB/s``.
        fabric: What its NVLinks need to come up: ``nvswitch``: NVIDIA's fabric manager where NVSwitches are there;
            ``nvlink5``: fabric manager and subnet manager (nvlsm), always; ``imex``: the daemon of a multi-node rack.
    """

    name: str
    ids: tuple[Device, ...] = Field(min_length=1)
    subsystem: str = Field("", pattern=r"^([0-9a-f]{4})?$")
    architecture: str
    compute_capability: Capability
    driver_min: str = Field("", pattern=r"^(\d{3})?$")
    vram_gib: float = Field(gt=0)
    pcie_generation: int = Field(ge=0, le=7)
    pcie_width: Literal[0, 1, 2, 4, 8, 16]
    nvlink: str
    fabric: Literal["none", "nvswitch", "nvlink5", "imex"] = "none"


class DriverBranch(Row):
    """A branch of NVIDIA's driver.

    Attributes:
        type: ``LTSB`` long-term, ``PB`` production, ``NFB`` new features.
        supported: It gets fixes from NVIDIA on the day the row was checked.
        ends: Year and month of its end, e.g. ``2028-06``; empty where there is no date.
        newest: Its newest version seen; empty where none was read.
        cuda: The newest CUDA whose toolkit it fully supports (PTX included).
        architectures: What it drives.
        flavours: Kernel module flavours it has.
        kernel_before: The first kernel (major.minor) it is known or expected not to build or run on; empty: none known.
        kernel_source: Where that was read.
    """

    branch: str = Field(pattern=BRANCH)
    type: Literal["LTSB", "PB", "NFB"]
    supported: bool
    ends: str = Field("", pattern=r"^(20\d\d-\d\d)?$")
    newest: str = Field("", pattern=r"^(\d{3}(\.\d+){1,2})?$")
    cuda: str
    architectures: tuple[str, ...] = Field(min_length=1)
    flavours: tuple[Flavour, ...] = Field(min_length=1)
    kernel_before: str = Field("", pattern=r"^(\d+\.\d+)?$")
    kernel_source: str = ""


class CudaToolkit(Row):
    """A CUDA toolkit, by minor version.

    Attributes:
        version: Major and minor, e.g. ``12.9``.
        driver_min: Version of the driver that came with its first release: with that or a later one nothing is missing.
        compute: The compute capabilities it compiles for, lowest first; no range, as 12.8 knows 12.0 but not 10.3.
        newest: Its newest release, e.g. ``12.9.2``.
        repositories: Names (``ubuntu2404``) of NVIDIA's repositories in which its package was read.
        size: Bytes on disk.
    """

    version: str = Field(pattern=r"^\d+\.\d+$")
    driver_min: str
    compute: tuple[Capability, ...] = Field(min_length=1)
    newest: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    repositories: tuple[str, ...] = ()
    size: int = Field(gt=0)

    @property
    def compute_min(self) -> str:
        """The lowest compute capability it compiles for."""
        return self.compute[0]

    @property
    def compute_max(self) -> str:
        """The highest."""
        return self.compute[-1]


class CudaMajor(Row):
    """Minor-version compatibility: from this branch on every runtime of a major version runs, without newer PTX."""

    major: str
    driver_min: str = Field(pattern=BRANCH)


class Cuda(Row):
    """cuda.yml.

    Attributes:
        toolkits: Oldest first.
        package: Name of the toolkit's package, a template over ``major`` and ``minor``; never one that pulls a driver.
        package_version: Its version, a template over a toolkit's ``newest``.
        prefix: Where it lies, a template over ``version``.
    """

    package: str
    package_version: str
    prefix: str
    majors: tuple[CudaMajor, ...]
    toolkits: tuple[CudaToolkit, ...]


class Library(Row):
    """A version of cuDNN or NCCL for one CUDA major.

    Attributes:
        debs: Package -> version in NVIDIA's apt repositories; templates over ``cuda`` (12.9) and ``major`` (12).
        rpms: The same for dnf.
        compute_min: The lowest compute capability it runs on.
    """

    name: Literal["cudnn", "nccl"]
    version: str
    cuda_major: str
    compute_min: Capability
    debs: dict[str, str] = Field(min_length=1)
    rpms: dict[str, str] = Field(default_factory=dict)
    size: int = Field(gt=0)
