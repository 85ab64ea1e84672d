"""Decides frameworks, each in an environment of its own."""

from __future__ import annotations

from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Part


def plan_frameworks(stack: Stack) -> Part:
    """Decide the variables of role ml_environments."""
    return Part()
