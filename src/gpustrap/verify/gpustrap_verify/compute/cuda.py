"""The driver's own library, libcuda.so.1, by ctypes: nothing but a driver has to be installed.

Names, signatures and numbers are those of NVIDIA's CUDA Driver API reference. A call that fails raises `CudaError` with
the code, its name and the driver's words for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LIBRARY = "libcuda.so.1"

_PCI_BUS, _PCI_SLOT, _PCI_DOMAIN = 33, 34, 50
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
_LOG, _LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
_LOG_BYTES = 4096


class CudaError(Exception):
    """A call of the driver's library failed.

    Attributes:
        code: Its CUresult; 0 where the library itself cannot be used.
    """

    def __init__(self, call: str, code: int, words: str) -> None:
        super().__init__(f"{call}: error {code}: {words}" if code else f"{call}: {words}")
        self.code = code

    def with_words(self, further: str) -> CudaError:
        """The same error with what else was said of it."""
        self.args = ("\n".join([*map(str, self.args), *filter(None, [further])]),)
        return self


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG device, as CUDA has it.

    Attributes:
        ordinal: Its number in this process.
        uuid: ``GPU-…``.
        name: For people.
        address: PCI address.
        compute: Compute capability, such as (9, 0).
        multiprocessors: How many; equal ones of two GPUs of a name make equal results.
        memory: Bytes.
    """

    ordinal: int
    uuid: str
    name: str
    address: str
    compute: tuple[int, int]
    multiprocessors: int
    memory: int


class Cuda:
    """The library, started.

    Raises:
        CudaError: It is not there, or does not start.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CudaError("dlopen", 0, str(error)) from None
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - whatever ctypes takes
        """One call; raises `CudaError` unless it says 0."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise CudaError(name, 0, f"{LIBRARY} has no such function, the driver is too old") from None
        code = function(*arguments)
        if code:
            raise CudaError(name, code, self._words(code))

    def _words(self, code: int) -> str:
        said = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            getattr(self._library, name)(code, ctypes.byref(text))
            said.append((text.value or b"unknown to this driver").decode("utf-8", "replace"))
        return ": ".join(said)

    @property
    def version(self) -> str:
        """The CUDA version of the driver, such as 13.0."""
        found = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(found))
        return f"{found.value // 1000}.{found.value % 1000 // 10}"

    def devices(self) -> list[Device]:
        """All devices that this process can see."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return [self._device(ordinal) for ordinal in range(count.value)]

    def _device(self, ordinal: int) -> Device:
        name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
        self.call("cuDeviceGetName", name, len(name), ordinal)
        self.call("cuDeviceTotalMem_v2", ctypes.byref(memory), ordinal)
        domain, bus, slot = (self.attribute(which, ordinal) for which in (_PCI_DOMAIN, _PCI_BUS, _PCI_SLOT))
        return Device(
            ordinal,
            f"GPU-{uuid.UUID(bytes=self._uuid(ordinal))}",
            name.value.decode("utf-8", "replace"),
            f"{domain:04x}:{bus:02x}:{slot:02x}.0",
            (self.attribute(_MAJOR, ordinal), self.attribute(_MINOR, ordinal)),
            self.attribute(_MULTIPROCESSORS, ordinal),
            memory.value,
        )

    def _uuid(self, ordinal: int) -> bytes:
        found = (ctypes.c_char * 16)()
        modern = hasattr(self._library, "cuDeviceGetUuid_v2")  # since CUDA 11.4; tells MIG devices apart
        self.call("cuDeviceGetUuid_v2" if modern else "cuDeviceGetUuid", ctypes.byref(found), ordinal)
        return bytes(found.raw)

    def attribute(self, which: int, ordinal: int) -> int:
        """One of a device's attributes, by its number in the API."""
        found = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(found), which, ordinal)
        return found.value

    def can_access(self, one: Device, other: Device) -> bool:
        """Whether a device can read the other's memory without the host."""
        found = ctypes.c_int()
        self.call("cuDeviceCanAccessPeer", ctypes.byref(found), one.ordinal, other.ordinal)
        return bool(found.value)

    @contextlib.contextmanager
    def context(self, device: Device) -> Iterator[Context]:
        """The device's primary context, which libraries such as cuBLAS use too."""
        handle = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(handle), device.ordinal)
        context = Context(self, device, handle)
        try:
            context.enter()
            yield context
        finally:
            with contextlib.suppress(CudaError):  # of a device that is lost there is nothing to give back
                self.call("cuDevicePrimaryCtxRelease_v2", device.ordinal)


class Context:
    """A device in use: its memory, kernels and clock. All work is on the default stream, in the order of the calls."""

    def __init__(self, cuda: Cuda, device: Device, handle: ctypes.c_void_p) -> None:
        self.cuda, self.device, self.handle = cuda, device, handle
        self._functions: dict[str, ctypes.c_void_p] = {}

    def enter(self) -> None:
        """Calls of this thread are about this device from here on."""
        self.cuda.call("cuCtxSetCurrent", self.handle)

    def free(self) -> int:
        """Bytes of its memory that nobody has."""
        left, whole = ctypes.c_size_t(), ctypes.c_size_t()
        self.cuda.call("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(whole))
        return left.value

    @contextlib.contextmanager
    def memory(self, *sizes: int) -> Iterator[list[int]]:
        """Addresses of device memory of these sizes, given back at the end."""
        addresses: list[int] = []
        try:
            for size in sizes:
                address = ctypes.c_uint64()
                self.cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
                addresses.append(address.value)
            yield addresses
        finally:
            for one in addresses:
                with contextlib.suppress(CudaError):
                    self.cuda.call("cuMemFree_v2", ctypes.c_uint64(one))

    @contextlib.contextmanager
    def pinned(self, size: int) -> Iterator[ctypes.Array[ctypes.c_char]]:
        """Memory of the host that the device copies from and to by itself."""
        address = ctypes.c_void_p()
        self.cuda.call("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(size))
        try:
            yield (ctypes.c_char * size).from_address(address.value or 0)
        finally:
            with contextlib.suppress(CudaError):
                self.cuda.call("cuMemFreeHost", address)

    def upload(self, address: int, data: bytes) -> None:
        """Copy to the device."""
        self.cuda.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_char_p(data), ctypes.c_size_t(len(data)))

    def download(self, address: int, size: int) -> bytearray:
        """Copy from the device."""
        data = bytearray(size)
        into = (ctypes.c_char * size).from_buffer(data)
        self.cuda.call("cuMemcpyDtoH_v2", into, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data

    def set_bytes(self, address: int, value: int, size: int) -> None:
        """Give every byte a value."""
        self.cuda.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(size))

    def load(self, modules: Mapping[str, str], names: Sequence[str]) -> None:
        """Compile the module for this device and find its kernels.

        Args:
            modules: PTX by the compute capability that it needs, such as ``75``.
            names: The kernels.
        """
        own = self.device.compute[0] * 10 + self.device.compute[1]
        fitting = [compute for compute in modules if int(compute) <= own]
        if not fitting:
            words = f"no kernel image is available: gpustrap's kernels are for newer GPUs than {own / 10}"
            raise CudaError("load", 0, words)
        text, module = modules[max(fitting, key=int)].encode() + b"\0", ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_LOG, _LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        try:
            self.cuda.call("cuModuleLoadDataEx", ctypes.byref(module), text, 2, options, values)
        except CudaError as error:
            said = log.value.decode("utf-8", "replace").strip()
            raise error.with_words(said) from None
        for name in names:
            function = ctypes.c_void_p()
            self.cuda.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self._functions[name] = function

    def launch(self, name: str, grid: tuple[int, int], *values: Any) -> None:  # noqa: ANN401 - any ctypes scalar
        """Start a kernel with blocks of 256 threads; what goes wrong in it shows at the next call that waits."""
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self.cuda.call("cuLaunchKernel", self._functions[name], *grid, 1, 256, 1, 1, 0, None, pointers, None)

    def wait(self) -> None:
        """Until all is done."""
        self.cuda.call("cuCtxSynchronize")

    @contextlib.contextmanager
    def timed(self) -> Iterator[list[float]]:
        """Seconds on the device's own clock of what is started within; the list is filled at the end."""
        first, last = ctypes.c_void_p(), ctypes.c_void_p()
        taken: list[float] = []
        try:
            for event in (first, last):
                self.cuda.call("cuEventCreate", ctypes.byref(event), 0)
            self.cuda.call("cuEventRecord", first, None)
            yield taken
            self.cuda.call("cuEventRecord", last, None)
            self.cuda.call("cuEventSynchronize", last)
            found = ctypes.c_float()
            self.cuda.call("cuEventElapsedTime", ctypes.byref(found), first, last)  # milliseconds
            taken.append(found.value / 1e3)
        finally:
            for event in (first, last):
                if event.value:
                    with contextlib.suppress(CudaError):
                        self.cuda.call("cuEventDestroy_v2", event)
