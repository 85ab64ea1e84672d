"""What can be removed, and what a node says would go."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gpustrap.model.base import FromNode

MOST = 10_000


class Part(StrEnum):
    """A part of the stack that can be removed."""

    DRIVER = "driver"
    CUDA = "cuda"


# Which roles put it there, and what the user sets so that the plan no longer has it.
ROLES = {Part.DRIVER: ("nvidia_driver", "nvidia_fabric_manager"), Part.CUDA: ("cuda_toolkit",)}
SWITCHES = {Part.DRIVER: "gpustrap_gpu: none", Part.CUDA: "gpustrap_cuda_version: none"}


class Removal(FromNode):
    """What a node would lose, and what of the same roles stays, with the reason."""

    packages: tuple[str, ...] = Field(default=(), max_length=MOST)
    files: tuple[str, ...] = Field(default=(), max_length=MOST)
    units: tuple[str, ...] = Field(default=(), max_length=MOST)
    released: tuple[str, ...] = Field(default=(), max_length=MOST, description="packages that stay, no longer on hold")
    kept: tuple[str, ...] = Field(default=(), max_length=MOST)
