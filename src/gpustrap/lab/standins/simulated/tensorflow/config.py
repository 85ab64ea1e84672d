"""tf.config: the devices. Where CUDA does not start there is no GPU, and TensorFlow goes on with the CPU."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any, NamedTuple

from ._lab import gpu
from ._lab.build import ARCHITECTURES

# tensorflow/core/common_runtime/gpu/gpu_device.cc and xla/stream_executor/cuda
NO_DRIVER = "Could not find cuda drivers on your machine, GPU will not be used."
FAILED = "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: {}: {}"
NO_LIBRARIES = """Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are \
installed properly if you would like to use GPU. Follow the guide at https://www.tensorflow.org/install/gpu for how to \
download and setup the required libraries for your platform.
Skipping registering GPU devices..."""
LIBRARIES = ("nvidia-cudnn-cu12", "nvidia-cublas-cu12", "nvidia-cuda-runtime-cu12")  # what [and-cuda] brings


class PhysicalDevice(NamedTuple):
    """A device."""

    name: str
    device_type: str


class LogicalDeviceConfiguration(NamedTuple):
    """A part of a device."""

    memory_limit: Any = None


class _State:
    gpus: list[Any] | None = None
    parts = 1


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The devices of a kind."""
    found = [PhysicalDevice("/physical_device:CPU:0", "CPU")]
    found += [PhysicalDevice(f"/physical_device:GPU:{one.ordinal}", "GPU") for one in _gpus()]
    return [one for one in found if device_type in {None, one.device_type}]


def _gpus() -> list[Any]:
    if _State.gpus is None:
        _State.gpus, trouble = [], ""
        if gpu.library() is None:
            trouble = NO_DRIVER
        elif ARCHITECTURES and not all(map(_installed, LIBRARIES)):
            trouble = NO_LIBRARIES
        elif ARCHITECTURES:
            try:
                _State.gpus = gpu.devices()
            except gpu.CudaError as error:
                trouble = FAILED.format(error.name, error.words)
        if trouble:
            sys.stderr.write(f"W0000 00:00:00.000000 1 gpu_device.cc:2342] {trouble}\n")
    return _State.gpus


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def count(kind: str) -> int:
    """How many devices of a kind programs see."""
    return len(_gpus()) if kind == "GPU" else _State.parts


def set_logical_device_configuration(device: PhysicalDevice, logical_devices: list[Any]) -> None:
    """Divide the CPU."""
    _State.parts = len(logical_devices)


def set_soft_device_placement(enabled: bool) -> None:
    """Nothing: nothing is placed elsewhere."""


def _details(device: PhysicalDevice) -> dict[str, Any]:
    found = _gpus()[int(device.name.rpartition(":")[2])]
    return {"device_name": found.name, "compute_capability": found.capability}


experimental = SimpleNamespace(set_memory_growth=lambda device, enable: None, get_device_details=_details)
