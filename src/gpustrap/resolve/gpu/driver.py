"""Decides the driver: branch, flavour, origin, version."""

from __future__ import annotations

from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.parts import Inputs, Part


def plan_driver(inputs: Inputs, gpus: tuple[NodeGpu, ...]) -> tuple[Part, Driver | None]:
    """Decide the variables of role nvidia_driver."""
    return Part(), None
