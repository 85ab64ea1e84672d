"""PyTorch, simulated: a stand-in of the gpustrap lab."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from . import cuda
from ._lab import values
from ._lab.build import CUDA, CUDNN, VERSION
from ._tensor import AcceleratorError, Tensor, bfloat16, device, dtype, float16, float32, half, tensor

__version__ = VERSION
simulated = True
version = SimpleNamespace(__version__=VERSION, cuda=CUDA or None, hip=None)
backends = SimpleNamespace(
    cudnn=SimpleNamespace(version=lambda: CUDNN or None, is_available=lambda: bool(CUDA), enabled=True),
    cuda=SimpleNamespace(is_built=lambda: bool(CUDA), matmul=SimpleNamespace(allow_tf32=False)),
)
float = float32


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product."""
    return a @ b


def zeros(*sizes: int, device: Any = None, dtype: Any = float32) -> Tensor:
    """Noughts."""
    return tensor(values.filled(0.0, sizes), device=device, dtype=dtype)


def ones(*sizes: int, device: Any = None, dtype: Any = float32) -> Tensor:
    """Ones."""
    return tensor(values.filled(1.0, sizes), device=device, dtype=dtype)


def allclose(a: Tensor, b: Tensor, rtol: Any = 1e-05, atol: Any = 1e-08) -> bool:
    """Whether two tensors are nearly the same."""
    pairs = zip(values.flat(a.data), values.flat(b.data))
    return all(abs(x - y) <= atol + rtol * abs(y) for x, y in pairs)


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Nothing: derivatives are always kept."""
    yield


from . import distributed, nn, optim  # noqa: E402 - they use what is above
from .nn import manual_seed  # noqa: E402

__all__ = [
    "AcceleratorError", "Tensor", "allclose", "backends", "bfloat16", "cuda", "device", "distributed", "dtype",
    "float", "float16", "float32", "half", "manual_seed", "matmul", "nn", "no_grad", "ones", "optim", "tensor",
    "version", "zeros",
]  # fmt: skip
