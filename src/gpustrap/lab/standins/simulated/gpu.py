"""The GPUs of this machine as CUDA's driver library has them, and what a kernel on one of them comes to (simulated)."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import time
from typing import Any, NamedTuple

from .build import ARCHITECTURES, CUDA

NO_KERNEL_IMAGE, INSUFFICIENT_DRIVER, NO_DEVICE = 209, 35, 100
# The runtime's words for its own code, which the driver's library does not have.
INSUFFICIENT = "CUDA driver version is insufficient for CUDA runtime version"
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


class CudaError(Exception):
    """A call ended with a code of CUDA's."""

    def __init__(self, code: int, name: str, words: str) -> None:
        super().__init__(words)
        self.code, self.name, self.words = code, name, words


class Device(NamedTuple):
    """A GPU that this process sees."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    memory: int
    bus_id: str


class _Library:
    """libcuda.so.1, loaded once; None where there is none."""

    loaded: Any = None
    devices: list[Device] | None = None
    products: dict[int, int] = {}  # noqa: RUF012 - one process, one driver
    broken: dict[int, int] = {}  # noqa: RUF012 - a device whose kernel failed fails from then on


def library() -> Any:
    """The driver's library; None where no driver is installed."""
    if _Library.loaded is None:
        try:
            _Library.loaded = ctypes.CDLL("libcuda.so.1")
        except OSError:
            return None
    return _Library.loaded


def driver_version() -> int:
    """CUDA of the driver as it spells it, 12040; 0 without a driver."""
    found = ctypes.c_int()
    return found.value if library() is not None and library().cuDriverGetVersion(ctypes.byref(found)) == 0 else 0


def too_old() -> bool:
    """Whether the driver's CUDA has a lower major than the build's: minors are compatible with each other."""
    return driver_version() // 1000 < int(CUDA.partition(".")[0])


def devices() -> list[Device]:
    """The GPUs that this process sees.

    Raises:
        CudaError: CUDA does not start.
    """
    if _Library.devices is None:
        if library() is None:
            raise CudaError(NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected")
        if too_old():
            raise CudaError(INSUFFICIENT_DRIVER, "cudaErrorInsufficientDriver", INSUFFICIENT)
        check(library().cuInit(0))
        count = ctypes.c_int()
        check(library().cuDeviceGetCount(ctypes.byref(count)))
        _Library.devices = [_device(ordinal) for ordinal in range(count.value)]
    return _Library.devices


def _device(ordinal: int) -> Device:
    cuda, name, bus = library(), ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    memory, numbers = ctypes.c_size_t(), [ctypes.c_int(), ctypes.c_int()]
    check(cuda.cuDeviceGetName(name, 256, ordinal))
    check(cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), ordinal))
    check(cuda.cuDeviceGetPCIBusId(bus, 32, ordinal))
    for number, attribute in zip(numbers, (MAJOR, MINOR)):
        check(cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, ordinal))
    capability = (numbers[0].value, numbers[1].value)
    return Device(ordinal, name.value.decode(), capability, memory.value, bus.value.decode())


def check(code: int) -> None:
    """Raise what a code means, in the driver's words.

    Raises:
        CudaError: It is not 0.
    """
    if code:
        name, words = ctypes.c_char_p(), ctypes.c_char_p()
        library().cuGetErrorName(code, ctypes.byref(name))
        library().cuGetErrorString(code, ctypes.byref(words))
        raise CudaError(code, (name.value or b"unknown").decode(), (words.value or b"unknown error").decode())


def has_code(capability: tuple[int, int]) -> bool:
    """Whether the build has code for a device: of its major and not a newer minor, or PTX that is not newer."""
    for kind, major, minor in re.findall(r"(sm|compute)_(\d+)(\d)\b", ARCHITECTURES):
        code = (int(major), int(minor))
        if (kind == "compute" and code <= capability) or (code[0] == capability[0] and code <= capability):
            return True
    return False


def launch(ordinal: int) -> None:
    """A kernel on a device.

    Raises:
        CudaError: The build has no code for it, or the device does not do it.
    """
    device, cuda = devices()[ordinal], library()
    check(_Library.broken.get(ordinal, 0))
    if not has_code(device.capability):
        check(NO_KERNEL_IMAGE)
    context = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuCtxSynchronize())
    check(int(_state(device, "cuda_load") or 0))
    while _state(device, "cuda_hang"):
        time.sleep(0.2)
    failed = int(_state(device, "cuda_launch") or 0)
    if failed:
        _Library.broken[ordinal] = failed  # from then on every call fails
        check(failed)


def flip(ordinal: int, rows: list[list[float]]) -> None:
    """Let a bit of a matrix product be wrong, where the device has that fault: PRODUCT,ROW,COLUMN,BIT."""
    _Library.products[ordinal] = number = _Library.products.get(ordinal, 0) + 1
    fault = _state(devices()[ordinal], "cuda_flip")
    if not fault:
        return
    wanted, row, column, bit = (int(word) for word in fault.split(","))
    if wanted in {0, number}:
        line = rows[row % len(rows)]
        at = column % len(line)
        (bits,) = struct.unpack("<I", struct.pack("<f", line[at]))
        (line[at],) = struct.unpack("<f", struct.pack("<I", bits ^ (1 << bit)))


def _state(device: Device, key: str) -> str:
    """A value of a device in the state file of the lab's machine; empty where there is none."""
    try:
        with open(os.environ.get("LAB_GPU_STATE", "/run/lab-gpu/state"), encoding="ascii") as file:
            values = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    except OSError:
        return ""
    addresses = {k.partition(".")[0]: v.lower() for k, v in values.items() if k.endswith(".bus_id")}
    # NVML's domain has eight digits, CUDA's four.
    index = next((k for k, v in addresses.items() if v.endswith(device.bus_id.lower())), "")
    return values.get(f"{index}.{key}", "")
