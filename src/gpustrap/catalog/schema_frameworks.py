"""The shape of what is known about frameworks: their builds, and the uv that installs them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpustrap.catalog.row import Row


class Wheel(Row):
    """A release of a framework in one build: wheels for uv, or packages of a conda channel.

    Attributes:
        framework: ``pytorch``, …
        version: Its exact version.
        index: URL of the wheel index; empty for the package index, and for conda.
        variant: ``cu126``, ``cpu``, …: what the build is called.
        requirement: What is asked for, e.g. ``torch==2.14.0``; of conda ``pytorch=2.13.0=cuda130*``.
        constraints: Further pins that it needs, e.g. ``nvidia-cudnn-cu12<9.11``.
        pythons: Versions of Python it has builds for, oldest first.
        cuda: CUDA it is built for; its major decides the lowest driver branch. Empty: it computes on the processor.
        driver_min: Where it needs a later branch than that.
        compute: Machine architecture (uname -m) -> compute capabilities it has machine code for. Code for 8.0 runs on
            8.6 and 8.9, too, but on no other major.
        ptx: Compute capability of the PTX it holds, from which a driver makes code for any later one; empty for none.
        ptx_fails: Where somebody reported that such code fails; empty where nobody did.
        size: Bytes of an environment with it.
    """

    framework: Literal["jax", "pytorch", "tensorflow", "vllm"]
    version: str
    index: str = ""
    variant: str
    requirement: str
    constraints: tuple[str, ...] = ()
    pythons: tuple[str, ...] = Field(min_length=1)
    cuda: str = Field("", pattern=r"^(\d+\.\d+)?$")
    driver_min: str = Field("", pattern=r"^(\d{3})?$")
    compute: dict[str, tuple[str, ...]] = Field(min_length=1)
    ptx: str = Field("", pattern=r"^(\d{1,2}\.\d)?$")
    ptx_fails: str = ""
    size: int = Field(gt=0)

    @property
    def row(self) -> str:
        """How the source of a choice names this row."""
        return f"catalog: frameworks, {self.framework} {self.version} {self.variant} on {' and '.join(self.compute)}"


class UvWheel(Row):
    """uv for one machine architecture, as the package index has it.

    Attributes:
        architecture: ``uname -m``.
        file: Name of the wheel.
        sha256: Of that file.
    """

    version: str
    architecture: str
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @property
    def row(self) -> str:
        """How the source of a choice names this row."""
        return f"catalog: uv, {self.version} {self.architecture}"
