"""Decides how docker's containers get at the GPUs."""

from __future__ import annotations

from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Part


def plan_containers(stack: Stack, docker: Part) -> Part:
    """Decide the variables of role nvidia_container_toolkit; ``docker`` is what was decided of docker."""
    return Part()
