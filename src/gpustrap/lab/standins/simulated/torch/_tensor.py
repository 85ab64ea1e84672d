"""Devices, types and tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ._lab import gpu, values
from ._lab.values import Place, PlaceError, Value

# What PyTorch adds to an error of CUDA's: c10/cuda/CUDAException.cpp and CUDADeviceAssertionHost.cpp.
ASYNCHRONOUS = """
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
SAME_DEVICE = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"

values.kernels.launch, values.kernels.flip = gpu.launch, gpu.flip


class AcceleratorError(RuntimeError):
    """An error of the device."""

    __module__ = "torch"


class dtype:
    """A type of numbers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return "torch." + self.name


float32, float16, bfloat16 = dtype("float32"), dtype("float16"), dtype("bfloat16")
half = float16
KINDS = {one.name: one for one in (float32, float16, bfloat16)}


class device:
    """Where a tensor lies."""

    def __init__(self, type: Any, index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index
        found = re.match(r"(cpu|cuda)(?::(\d+))?\Z", str(type))
        if not found:
            message = "Expected one of cpu, cuda device type at start of device string: {}"
            raise RuntimeError(message.format(type))
        self.type = found.group(1)
        self.index = int(found.group(2)) if found.group(2) else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        number = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{number})"


def place_of(where: Any) -> Place:
    """A place; CUDA starts when one on a GPU is asked for first.

    Raises:
        AcceleratorError: There is no such GPU.
    """
    found = device("cpu" if where is None else where)
    if found.type == "cpu":
        return Place("cpu")
    from . import cuda  # noqa: PLC0415 - it needs this module

    cuda.init()
    index = cuda.current_device() if found.index is None else found.index
    if index >= cuda.device_count():
        raise AcceleratorError("CUDA error: invalid device ordinal" + ASYNCHRONOUS)
    return Place("cuda", (index,))


def guarded(function: Callable[..., Value], *arguments: Any) -> Tensor:
    """An operation with PyTorch's words for what goes wrong.

    Raises:
        AcceleratorError: The GPU says so.
        RuntimeError: The tensors lie on different devices.
    """
    try:
        result = function(*arguments)
    except gpu.CudaError as error:
        raise AcceleratorError("CUDA error: " + error.words + ASYNCHRONOUS) from None
    except PlaceError as error:
        raise RuntimeError(SAME_DEVICE.format(_device(error.one), _device(error.two))) from None
    return as_tensor(result)


def as_tensor(value: Value) -> Tensor:
    """A value with PyTorch's methods."""
    found = Tensor.__new__(Tensor)
    found.__dict__.update(value.__dict__)
    found.grad = None
    return found


def _device(place: Place | None) -> device:
    if place is None or place.kind == "cpu":
        return device("cpu")
    return device("cuda", place.indices[0])


class Tensor(Value):
    """A tensor."""

    grad: Tensor | None

    @property
    def device(self) -> device:
        """Where it lies."""
        return _device(self.place)

    @property
    def dtype(self) -> dtype:
        """Its type."""
        return KINDS[self.kind]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return values.shape(self.data)

    is_cuda = property(lambda self: self.device.type == "cuda")

    def to(self, *wanted: Any) -> Tensor:
        """Itself with another type, or elsewhere."""
        found = self
        for one in wanted:
            if isinstance(one, dtype):
                found = guarded(values.run, (found,), found.data, lambda g: g)
                found.kind, found.data = one.name, values.rounded(found.data, one.name)
            else:
                found = as_tensor(Value(found.data, place_of(one), found.kind))
        return found

    def cuda(self, index: int = 0) -> Tensor:
        """Itself on a GPU."""
        return self.to(device("cuda", index))

    def cpu(self) -> Tensor:
        """Itself in the machine's memory."""
        return self.to("cpu")

    def float(self) -> Tensor:
        """Itself as float32."""
        return self.to(float32)

    def detach(self) -> Tensor:
        """Its numbers alone."""
        return as_tensor(Value(self.data, self.place, self.kind))

    def tolist(self) -> Any:
        """Its numbers."""
        return self.data

    def item(self) -> Any:
        """Its one number."""
        (number,) = values.flat(self.data)
        return number

    def sum(self) -> Tensor:
        """The sum of its numbers."""
        return guarded(lambda: values.scale(values.mean(self), len(values.flat(self.data))))

    def backward(self) -> None:
        """Put the derivative of itself by each leaf into that leaf's grad."""
        values.slopes(self)
        pending, seen = list(self.parents), set()
        while pending:
            value, _derivative = pending.pop()
            pending += value.parents
            if isinstance(value, Tensor) and not value.parents and id(value) not in seen:
                seen.add(id(value))
                fresh = as_tensor(Value(value.slope, value.place, value.kind))
                value.grad = fresh if value.grad is None else value.grad + fresh

    def __matmul__(self, other: Tensor) -> Tensor:
        return guarded(values.matmul, self, other)

    def __add__(self, other: Tensor) -> Tensor:
        return guarded(values.add, self, other)

    def __sub__(self, other: Tensor) -> Tensor:
        return guarded(values.subtract, self, other)

    def __mul__(self, number: Any) -> Tensor:
        return guarded(values.scale, self, number)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"tensor({self.data}, device='{self.device}')"


def tensor(data: Any, dtype: Any = float32, device: Any = None) -> Tensor:
    """Numbers on a device."""
    return as_tensor(Value(data, place_of(device), (dtype or float32).name))
