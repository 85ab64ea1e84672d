"""TensorFlow, simulated: a stand-in of the gpustrap lab."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from . import config, distribute
from ._lab import values
from ._lab.build import ARCHITECTURES, CUDA, CUDNN, VERSION
from ._tensor import DType, GradientTape, Tensor, Variable, bfloat16, constant, device, float16, float32, guarded

__version__ = VERSION
simulated = True
__all__ = ["DType", "GradientTape", "Tensor", "Variable", "bfloat16", "config", "constant", "device", "distribute"]
__all__ += ["float16", "float32"]


class VariableAggregation:
    """What becomes of the changes that the copies of a model make."""

    NONE, MEAN = "none", "mean"


def get_build_info() -> dict[str, Any]:
    """What this build is; a build without CUDA names none."""
    cuda = {"cuda_version": CUDA, "cudnn_version": CUDNN, "cuda_compute_capabilities": ARCHITECTURES.split()}
    return {"is_cuda_build": bool(ARCHITECTURES), "is_rocm_build": False, **(cuda if ARCHITECTURES else {})}


sysconfig = SimpleNamespace(get_build_info=get_build_info)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product."""
    return guarded(values.matmul, a, b)


def square(a: Tensor) -> Tensor:
    """Every number times itself."""
    return guarded(values.square, a)


def reduce_mean(a: Tensor) -> Tensor:
    """The mean of all numbers."""
    return guarded(values.mean, a)


def cast(a: Tensor, kind: DType) -> Tensor:
    """The same numbers of another type."""
    found = guarded(values.run, a, data=a.data)
    found.kind, found.data = kind.name, values.rounded(found.data, kind.name)
    return found


def reshape(a: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The same numbers in order, in another shape."""
    return guarded(values.run, a, data=values.folded(values.flat(a.data), tuple(sizes)))


def zeros(sizes: tuple[int, ...]) -> Tensor:
    """Noughts."""
    return constant(values.filled(0.0, tuple(sizes)))


def ones(sizes: tuple[int, ...]) -> Tensor:
    """Ones."""
    return constant(values.filled(1.0, tuple(sizes)))


def function(work: Callable[..., Any], autograph: bool = True) -> Callable[..., Any]:
    """The function itself: nothing is traced."""
    return work


def _conv2d(images: Tensor, filters: Tensor, strides: int, padding: str) -> Tensor:
    """By TensorFlow's order of axes: number, row, column, channel; filters row, column, in, out."""
    if strides != 1 or padding != "VALID":
        raise NotImplementedError("the stand-in of the gpustrap lab knows strides 1 and VALID alone")

    def work(one: Tensor, two: Tensor) -> values.Value:
        channels = range(len(one.data[0][0][0]))
        first = [[[[cell[c] for cell in row] for row in image] for c in channels] for image in one.data]
        outs = range(len(two.data[0][0][0]))
        second = [[[[cell[c][o] for cell in row] for row in two.data] for c in channels] for o in outs]
        inner = values.convolution(values.Value(first, None), values.Value(second, None))
        data = [[[list(cell) for cell in zip(*rows)] for rows in zip(*image)] for image in inner.data]
        return values.run((one, two), data)

    return guarded(work, images, filters)


linalg = SimpleNamespace(matmul=matmul)
nn = SimpleNamespace(conv2d=_conv2d)
