"""Every look at a node, in one place."""

from __future__ import annotations

from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.parts import Inputs, Part


def look(inputs: Inputs, gpus: tuple[NodeGpu, ...], driver: Driver | None, disk: dict[str, int]) -> Part:
    """Findings and refusals about a node with GPUs.

    Args:
        inputs: The node, the request, the catalog.
        gpus: Its NVIDIA GPUs.
        driver: What was decided; None where that was refused.
        disk: Directory -> bytes that the plan will still put there.
    """
    return Part()
