"""NVIDIA's cuBLAS by ctypes, from wherever it lies: it knows the tensor cores of every GPU.

Names, signatures and numbers are those of NVIDIA's cuBLAS reference (cublas_api.h, library_types.h). It goes by
columns: as it sees them, our matrices are transposed, and the product of B' and A' is C'.
"""

from __future__ import annotations

import ctypes
import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .cuda import Context, CudaError

WORKSPACE = 32 << 20  # our own, so that equal GPUs take equal ways: cuBLAS's reference, "Results reproducibility"

# Type -> cudaDataType_t of A and B, cublasComputeType_t, and the compute capability that brought it
_KINDS = {
    "fp32": (0, 69, (5, 0)),  # CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC
    "tf32": (0, 77, (8, 0)),  # CUBLAS_COMPUTE_32F_FAST_TF32
    "fp16": (2, 68, (5, 3)),  # CUDA_R_16F, CUBLAS_COMPUTE_32F
    "bf16": (14, 68, (8, 0)),  # CUDA_R_16BF
}
_FP32, _DEFAULT = 0, -1
_STATUS = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED",
    7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    15: "CUBLAS_STATUS_NOT_SUPPORTED",
    16: "CUBLAS_STATUS_LICENSE_ERROR",
}
_NAME = re.compile(r"^libcublas\.so\.([1-9]\d)$")
_PLACES = (
    "lib/python3*/site-packages/nvidia/*/lib",  # of an environment: nvidia/cublas (CUDA 12), nvidia/cu13
    "lib",  # of a conda environment
    "targets/*/lib",  # of a toolkit
    "lib64",
)
_CACHED = re.compile(r"=>\s*(/\S*/libcublas\.so\.[1-9]\d)$", re.MULTILINE)


def find(prefixes: Iterable[Path], cache: str) -> list[Path]:
    """The libraries there are, in the order in which to try them; of an older API than CUDA 11's, none works.

    Args:
        prefixes: Environments, then toolkits.
        cache: What ``ldconfig -p`` says.
    """
    found: dict[Path, None] = {}
    for prefix in prefixes:
        for place in _PLACES:
            names = sorted(glob.glob(f"{glob.escape(str(prefix))}/{place}/libcublas.so.*"), reverse=True)  # noqa: PTH207
            found.update(dict.fromkeys(path for path in map(Path, names) if _NAME.match(path.name)))
    found.update(dict.fromkeys(map(Path, _CACHED.findall(cache))))
    distinct = {path.resolve(): path for path in reversed(found)}
    return [path for path in found if path in distinct.values()]


class Cublas:
    """The library, for one device.

    Attributes:
        path: Where it lies.
        version: Such as 13.1.0.
    """

    def __init__(self, path: Path, context: Context) -> None:
        """Start it on the device, which must be current.

        Raises:
            CudaError: It cannot be loaded, or not used with this driver or GPU.
        """
        self.path, self._context = path, context
        try:
            major = path.name.rsplit(".", 1)[1]
            ctypes.CDLL(str(path.with_name(f"libcublasLt.so.{major}")), mode=ctypes.RTLD_GLOBAL)  # not another one
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise CudaError("dlopen", 0, str(error)) from None
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        version = ctypes.c_int()
        self._call("cublasGetVersion_v2", self._handle, ctypes.byref(version))
        self.version = _version(version.value)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(f"{name} of {self.path}", 0, f"status {code}: {_STATUS.get(code, 'unknown to gpustrap')}")

    def kinds(self) -> tuple[str, ...]:
        """The types that this device multiplies."""
        return tuple(kind for kind, (_, _, since) in _KINDS.items() if self._context.device.compute >= since)

    def use(self, workspace: int, size: int) -> None:
        """Work in this memory of the device: without it, the way that a product takes is not always the same."""
        self._call("cublasSetWorkspace_v2", self._handle, ctypes.c_uint64(workspace), ctypes.c_size_t(size))

    def multiply(self, kind: str, a: int, b: int, c: int, n: int) -> None:
        """C = A x B."""
        data, compute, _ = _KINDS[kind]
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        left = (ctypes.c_uint64(b), data, n)
        right = (ctypes.c_uint64(a), data, n)
        into = (ctypes.c_uint64(c), _FP32, n)
        sizes = (0, 0, n, n, n)  # neither transposed
        scaled = (ctypes.byref(one), *left, *right, ctypes.byref(zero), *into)
        self._call("cublasGemmEx", self._handle, *sizes, *scaled, compute, _DEFAULT)

    def close(self) -> None:
        """Give back what it has on the device."""
        self._call("cublasDestroy_v2", self._handle)


def _version(number: int) -> str:
    """12.9.1 is 120901, and 11.2.0 is 11200."""
    major = number // 10000 if number >= 100000 else number // 1000
    rest = number - major * (10000 if number >= 100000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def first_that_works(paths: Sequence[Path], context: Context) -> Iterator[Cublas | CudaError]:
    """Try libraries in turn: each that fails is an error, the first that starts is the last of the answers."""
    for path in paths:
        try:
            yield Cublas(path, context)
        except CudaError as error:
            yield error
        else:
            return
