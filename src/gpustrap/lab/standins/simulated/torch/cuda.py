"""torch.cuda: what it says about GPUs, in PyTorch's words."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace
from typing import Any

from ._lab import gpu
from ._lab.build import ARCHITECTURES, CUDA

# torch/cuda/__init__.py and c10/cuda/CUDAFunctions.cpp
NO_DRIVER = """Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver \
from http://www.nvidia.com/Download/index.aspx"""
TOO_OLD = """The NVIDIA driver on your system is too old (found version {}). Please update your GPU driver by \
downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: \
https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver."""
UNKNOWN = """CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable \
CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."""
UNEXPECTED = """Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling \
NumCudaDevices() that might have already set an error? Error {}: {}"""
NOT_BUILT = "Torch not compiled with CUDA enabled"
INCOMPATIBLE = """
{name} with CUDA capability sm_{code} is not compatible with the current PyTorch installation.
The current PyTorch install supports CUDA capabilities {built}.
If you want to use the {name} GPU with PyTorch, please check the instructions at \
https://pytorch.org/get-started/locally/
"""
_state = {"current": 0, "started": 0}


def _trouble() -> str:
    """Why CUDA does not start; empty where it does."""
    if gpu.library() is None:
        return NO_DRIVER
    if gpu.too_old():
        return TOO_OLD.format(gpu.driver_version())
    try:
        gpu.devices()
    except gpu.CudaError as error:
        if error.code == gpu.NO_DEVICE:
            return "No CUDA GPUs are available"
        return UNKNOWN if error.code == 999 else UNEXPECTED.format(error.code, error.words)
    return "" if gpu.devices() else "No CUDA GPUs are available"


def init() -> None:
    """Start CUDA.

    Raises:
        AssertionError: The build has none.
        RuntimeError: It does not start.
    """
    if not CUDA:
        raise AssertionError(NOT_BUILT)
    trouble = _trouble()
    if trouble:
        raise RuntimeError(trouble)
    for device in () if _state["started"] else gpu.devices():
        if not gpu.has_code(device.capability):
            code = "".join(map(str, device.capability))
            warnings.warn(INCOMPATIBLE.format(name=device.name, code=code, built=ARCHITECTURES), stacklevel=2)
    _state["started"] = 1


def is_available() -> bool:
    """Whether there is a GPU; not whether it can be used."""
    return device_count() > 0


def device_count() -> int:
    """How many GPUs there are; 0 where CUDA does not start."""
    trouble = _trouble() if CUDA else NOT_BUILT
    if trouble and CUDA and trouble not in {NO_DRIVER, "No CUDA GPUs are available"}:
        warnings.warn("CUDA initialization: " + trouble, stacklevel=2)
    return 0 if trouble else len(gpu.devices())


def get_arch_list() -> list[str]:
    """What the build has code for; nothing where there is no GPU."""
    return ARCHITECTURES.split() if is_available() else []


def current_device() -> int:
    """The GPU that is taken when none is said."""
    return _state["current"]


def set_device(device: Any) -> None:
    """Choose it."""
    init()
    _state["current"] = _index(device)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Major and minor."""
    init()
    return gpu.devices()[_index(device)].capability


def get_device_name(device: Any = None) -> str:
    """What the driver calls it."""
    init()
    return gpu.devices()[_index(device)].name


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """Some of them."""
    init()
    found = gpu.devices()[_index(device)]
    major, minor = found.capability
    return SimpleNamespace(name=found.name, major=major, minor=minor, total_memory=found.memory)


def synchronize(device: Any = None) -> None:
    """Nothing: every operation has ended when it comes back."""
    init()


def empty_cache() -> None:
    """Nothing: no memory is kept."""


def is_initialized() -> bool:
    """Whether CUDA was started."""
    return bool(_state["started"])


def _index(device: Any) -> int:
    if device is None:
        return _state["current"]
    found = re.search(r"\d+", str(device))
    return int(found.group()) if found else _state["current"]
