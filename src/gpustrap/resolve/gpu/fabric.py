"""Decides fabric manager, subnet manager and IMEX."""

from __future__ import annotations

from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Part


def plan_fabric(stack: Stack) -> Part:
    """Decide the variables of role nvidia_fabric_manager."""
    return Part()
