"""Devices, tensors and variables."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from . import config
from ._lab import gpu, values
from ._lab.values import Place, PlaceError, Value

values.kernels.launch, values.kernels.flip = gpu.launch, gpu.flip
TASK = "/job:localhost/replica:0/task:0/device:"
_chosen: list[Place] = []


class DType:
    """A type of numbers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return "tf." + self.name


float32, float16, bfloat16 = DType("float32"), DType("float16"), DType("bfloat16")


class InternalError(Exception):
    """An error of the device."""


class InvalidArgumentError(Exception):
    """Something that cannot be."""


def place_of(name: str) -> Place:
    """A place by a device's name.

    Raises:
        InvalidArgumentError: There is no such device.
    """
    found = re.search(r"(CPU|GPU):(\d+)\Z", name, re.IGNORECASE)
    kind, index = (found.group(1).upper(), int(found.group(2))) if found else ("", 0)
    if not kind or index >= config.count(kind):
        raise InvalidArgumentError(f"Could not satisfy device specification '{name}'")
    return Place("cuda" if kind == "GPU" else "cpu", (index,))


@contextlib.contextmanager
def device(name: str) -> Iterator[None]:
    """What is made inside lies there."""
    with at(place_of(name)):
        yield


@contextlib.contextmanager
def at(place: Place) -> Iterator[None]:
    """As `device`."""
    _chosen.append(place)
    try:
        yield
    finally:
        _chosen.pop()


def here() -> Place:
    """Where something is made: the first GPU, and without one the CPU, unless told otherwise."""
    return _chosen[-1] if _chosen else Place("cuda" if config.count("GPU") else "cpu")


class Tensor(Value):
    """A tensor."""

    @property
    def device(self) -> str:
        """Where it lies."""
        place = self.place or here()
        return "{}{}:{}".format(TASK, "GPU" if place.kind == "cuda" else "CPU", place.indices[0])

    @property
    def dtype(self) -> DType:
        """Its type."""
        return DType(self.kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return values.shape(self.data)

    def numpy(self) -> SimpleNamespace:
        """Its numbers; of an array only what gives them as lists."""
        return SimpleNamespace(tolist=lambda: self.data)

    def __float__(self) -> float:
        return float(values.flat(self.data)[0])

    def __sub__(self, other: Tensor) -> Tensor:
        return guarded(values.subtract, self, other)

    def __add__(self, other: Tensor) -> Tensor:
        return guarded(values.add, self, other)

    def __mul__(self, number: float) -> Tensor:
        return guarded(values.scale, self, number)

    __rmul__ = __mul__


def tensor(value: Value) -> Tensor:
    """A value with TensorFlow's methods."""
    found = Tensor.__new__(Tensor)
    found.__dict__.update(value.__dict__)
    return found


def guarded(function: Callable[..., Value], *arguments: Any, data: Any = None) -> Tensor:
    """An operation where the program is; what lies elsewhere is copied there, as TensorFlow does.

    Raises:
        InternalError: The GPU says so.
    """
    place = here()
    moved = [_moved(one, place) if isinstance(one, Value) else one for one in arguments]
    try:
        result = function(tuple(moved), data) if function is values.run else function(*moved)
    except gpu.CudaError as error:
        raise InternalError(f"{error.name}: {error.words}") from None
    except PlaceError as error:
        raise InvalidArgumentError(str(error)) from None
    return tensor(result)


def _moved(value: Value, place: Place) -> Value:
    """A value in another place, from which the derivative comes back."""
    if value.place == place:
        return value
    found = Value(value.data, place, value.kind)
    found.parents = [(value, lambda g: g)]
    return found


def constant(data: Any, dtype: DType = float32) -> Tensor:
    """Numbers, where the program is."""
    return tensor(Value(data, here(), dtype.name))


class Variable(Tensor):
    """What a model learns. In a strategy's scope its changes are kept until all copies have made theirs."""

    waiting: list[Any] | None = None

    def __init__(self, value: Tensor, aggregation: str = "none") -> None:
        super().__init__(value.data, value.place, value.kind)
        self.aggregation = aggregation

    def assign_sub(self, change: Value) -> None:
        """Less that."""
        if Variable.waiting is not None and self.aggregation == "mean":
            Variable.waiting.append((self, change.data))
        else:
            self.data = values.rounded(values.apply(self.data, operator.sub, change.data), self.kind)


class GradientTape:
    """Derivatives; they are always kept."""

    def __enter__(self) -> GradientTape:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def gradient(self, result: Tensor, source: Variable) -> Tensor:
        """How fast the result changes with the source."""
        values.slopes(result)
        return tensor(Value(source.slope, result.place, source.kind))
