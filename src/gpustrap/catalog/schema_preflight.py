"""The shape of what the looks at a node before anything is changed rest on."""

from __future__ import annotations

from pydantic import Field

from gpustrap.catalog.row import Row
from gpustrap.model.base import Frozen


class Initramfs(Row):
    """Bytes of a kernel's initramfs, without and with NVIDIA's modules and firmware in it."""

    size: int = Field(gt=0)
    with_driver: int = Field(gt=0)

    @property
    def growth(self) -> int:
        """What the driver adds to it."""
        return self.with_driver - self.size


class Downloads(Row):
    """What packages take in the package manager's cache, in percent of what they take installed."""

    percent: int = Field(gt=0, le=100)


class Files(Row):
    """Mean bytes of a file: how many inodes something takes, when only its size is known."""

    mean_size: int = Field(gt=0)


class Bar(Row):
    """Bytes of the largest memory region that every GPU asks the firmware for, at least."""

    size: int = Field(gt=0)


class Margin(Row):
    """Percent of a whole."""

    percent: int = Field(gt=0, lt=100)


class DriverRepository(Row):
    """A repository with driver packages of the same names as another's; ``in_uri`` tells it."""

    name: str
    in_uri: str = Field(min_length=8)


class Preflight(Frozen):
    """preflight.yml."""

    initramfs: Initramfs
    downloads: Downloads
    files: Files
    bar: Bar
    spare: Margin
    reserved: Margin
    driver_repositories: tuple[DriverRepository, ...]
