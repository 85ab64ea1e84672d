"""Devices and arrays. Which GPUs there are is the CUDA plugin's part, as in JAX: without one there is the CPU alone."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ._lab import values
from ._lab.values import Place, Value

# jax/_src/xla_bridge.py
UNKNOWN = """Unknown backend: '{0}' requested, but no platforms that are instances of {0} are present. Platforms \
present are: cpu"""
FAILED = "Backend '{}' failed to initialize: {}. Available backends are ['cpu']"
QUIETLY = "ERROR:jax._src.xla_bridge:Jax plugin configuration error: {}\n"
FALLING_BACK = """WARNING:jax._src.xla_bridge:An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib \
is not installed. Falling back to cpu.
"""


class Device(NamedTuple):
    """A device."""

    platform: str
    id: int
    device_kind: str

    def __repr__(self) -> str:
        return "{}(id={})".format("CudaDevice" if self.platform == "gpu" else "CpuDevice", self.id)


class XlaRuntimeError(RuntimeError):
    """An error of the device."""


class _Backend:
    plugin: Any = None
    found: list[Device] | None = None
    trouble = ""


def _plugin() -> Any:
    """The installed plugin for CUDA; None without one."""
    for name in ("jax_cuda13_plugin", "jax_cuda12_plugin"):
        try:
            return importlib.import_module(name + "._lab.gpu")
        except ImportError:
            continue
    return None


def _gpus() -> list[Device]:
    """The GPUs; none where CUDA does not start, and then `_Backend.trouble` says why."""
    if _Backend.found is None:
        _Backend.found, gpu = [], _plugin()
        _Backend.plugin = gpu
        if gpu is not None:
            values.kernels.launch, values.kernels.flip = gpu.launch, gpu.flip
        if gpu is None or os.environ.get("JAX_PLATFORMS") == "cpu":
            if os.path.exists("/dev/nvidia0") and gpu is None:
                sys.stderr.write(FALLING_BACK)
            return []
        try:
            _Backend.found = [Device("gpu", one.ordinal, one.name) for one in gpu.devices()]
        except gpu.CudaError as error:
            # jaxlib/cuda/versions_helpers.cc
            _Backend.trouble = "jaxlib/cuda/versions_helpers.cc:80: operation cuInit(0) failed: " + error.name
            if error.code == gpu.INSUFFICIENT_DRIVER:
                _Backend.trouble = "INTERNAL: " + error.words
            sys.stderr.write(QUIETLY.format(_Backend.trouble))
    return _Backend.found


def _cpus() -> list[Device]:
    asked = re.search(r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return [Device("cpu", number, "cpu") for number in range(int(asked.group(1)) if asked else 1)]


def devices(backend: str | None = None) -> list[Device]:
    """The devices of a kind; of the best without one.

    Raises:
        RuntimeError: There are none of that kind.
    """
    if backend == "cpu":
        return _cpus()
    gpus = _gpus()
    if backend is not None and not gpus:
        raise RuntimeError(FAILED.format(backend, _Backend.trouble) if _Backend.trouble else UNKNOWN.format(backend))
    return gpus or _cpus()


def default_device() -> Device:
    """Where an array lies of which nobody has said."""
    return devices()[0]


class Array(Value):
    """An array."""

    def devices(self) -> set[Device]:
        """Where it lies."""
        if self.place is None:
            return {default_device()}
        platform = "gpu" if self.place.kind == "cuda" else "cpu"
        every = _gpus() if platform == "gpu" else _cpus()
        return {device for device in every if device.id in self.place.indices}

    def astype(self, kind: Any) -> Array:
        """Itself with another type."""
        name = str(kind)
        found = guarded(values.run, (self,), self.data)
        found.kind, found.data = name, values.rounded(found.data, name)
        return found

    def tolist(self) -> Any:
        """Its numbers."""
        return self.data

    def item(self) -> Any:
        """Its one number."""
        return float(self)

    def block_until_ready(self) -> Array:
        """Itself: every operation has ended when it comes back."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return values.shape(self.data)

    def __float__(self) -> float:
        return float(values.flat(self.data)[0])

    def __matmul__(self, other: Array) -> Array:
        return guarded(values.matmul, self, other)

    def __add__(self, other: Array) -> Array:
        return guarded(values.add, self, other)

    def __sub__(self, other: Array) -> Array:
        return guarded(values.subtract, self, other)

    def __mul__(self, number: float) -> Array:
        return guarded(values.scale, self, number)

    __rmul__ = __mul__

    def __pow__(self, power: int) -> Array:
        if power != 2:
            raise NotImplementedError("the stand-in of the gpustrap lab knows the second power alone")
        return guarded(values.square, self)


def array(value: Value) -> Array:
    """A value with JAX's methods."""
    found = Array.__new__(Array)
    found.__dict__.update(value.__dict__)
    return found


def guarded(function: Callable[..., Value], *arguments: Any) -> Array:
    """An operation with JAX's words for what goes wrong.

    Raises:
        XlaRuntimeError: The GPU says so.
        ValueError: The arrays lie on different devices.
    """
    first = default_device()
    try:
        if first.platform == "gpu" and all(one.place is None for one in arguments if isinstance(one, Value)):
            _Backend.plugin.launch(first.id)
        result = function(*arguments)
    except values.PlaceError as error:
        message = "Received incompatible devices for jitted computation. Got {} and {}"
        raise ValueError(message.format(error.one, error.two)) from None
    except getattr(_Backend.plugin, "CudaError", ()) as error:
        raise XlaRuntimeError(f"INTERNAL: {error.name}: {error.words}") from None
    return array(result)


def settle(value: Any, place: Any) -> Array:
    """An array on a device, or on those of a sharding."""
    every = getattr(place, "devices", [place])
    if place is None:
        return array(Value(value.data, value.place, value.kind))
    kind = "cuda" if every[0].platform == "gpu" else "cpu"
    return array(Value(value.data, Place(kind, tuple(sorted(one.id for one in every))), value.kind))


def convolve(image: Array, filters: Array, strides: Any, padding: str) -> Array:
    """jax.lax.conv with strides of 1 and without padding."""
    if tuple(strides) != (1, 1) or padding != "VALID":
        raise NotImplementedError("the stand-in of the gpustrap lab knows strides (1, 1) and VALID alone")
    return guarded(values.convolution, image, filters)
