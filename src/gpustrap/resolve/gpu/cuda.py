"""Decides the CUDA toolkit, cuDNN and NCCL."""

from __future__ import annotations

from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Part


def plan_cuda(stack: Stack) -> Part:
    """Decide the variables of role cuda_toolkit."""
    return Part()
