"""JAX, simulated: a stand-in of the gpustrap lab."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from . import numpy, sharding
from ._array import Array, Device, array, convolve, default_device, devices, settle
from ._lab import values
from ._lab.build import VERSION

__version__ = VERSION
simulated = True
__all__ = ["Array", "Device", "default_backend", "device_count", "device_put", "devices", "grad", "jit", "lax"]
__all__ += ["local_devices", "numpy", "sharding", "value_and_grad"]

local_devices = devices


def default_backend() -> str:
    """``gpu`` or ``cpu``."""
    return "gpu" if default_device().platform == "gpu" else "cpu"


def device_count() -> int:
    """How many there are of the default kind."""
    return len(devices())


def device_put(value: Any, place: Any = None) -> Array:
    """An array on a device, or spread over those of a sharding."""
    return settle(value, place)


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself: nothing is compiled."""
    return function


def value_and_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives its value and the derivative by its first argument, too."""

    def both(first: Any, *others: Any) -> tuple[Array, Array]:
        leaf = array(values.Value(first.data, first.place, first.kind))
        result = function(leaf, *others)
        values.slopes(result)
        return result, array(values.Value(leaf.slope, result.place, leaf.kind))

    return both


def grad(function: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative by the first argument."""
    return lambda *arguments: value_and_grad(function)(*arguments)[1]


lax = SimpleNamespace(conv=convolve)
