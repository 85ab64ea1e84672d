"""What a framework says when it does not work -> why -> what to do. The first that fits is taken.

The words on the left are the frameworks' and the driver's own, from public reports of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .remedies import Remedy


@dataclass(frozen=True)
class Symptom:
    """One of them.

    Attributes:
        name: Of the failure mode, as docs/environments.md has it.
        words: What is said, as a regular expression; case does not matter.
        cause: Why; ``{cuda}`` is the version that was found, where the words have one.
        remedy: The next step.
        codes: The scripts' own codes that mean the same.
    """

    name: str
    words: str
    cause: str
    remedy: Remedy
    codes: tuple[str, ...] = ()


SYMPTOMS: tuple[Symptom, ...] = (
    Symptom(
        "driver-too-old",
        r"driver on your system is too old|CUDA driver version is insufficient|driver version is too old"
        r"|CUDA_ERROR_INSUFFICIENT_DRIVER|cudaErrorInsufficientDriver",
        "the driver is too old for this build{cuda}",
        Remedy.PLAN_BUILD,
    ),
    Symptom(
        "no-kernel-image",
        r"no kernel image is available|CUDA_ERROR_NO_BINARY_FOR_GPU|is not compatible with the current PyTorch"
        r"|device kernel image is invalid",
        "its build has no code for this GPU",
        Remedy.OTHER_BUILD,
        codes=("no-kernel-image",),
    ),
    Symptom(
        "conda-cpu-build",
        r"Unknown backend:? '?(cuda|gpu)|not compiled with CUDA enabled",
        "it is a build for the CPU, and never uses a GPU",
        Remedy.OTHER_BUILD,
        codes=("cpu-build",),
    ),
    Symptom(
        "tf-no-gpu",
        r"Cannot dlopen some GPU libraries",
        "TensorFlow does not find CUDA's libraries, and would take the CPU in silence",
        Remedy.OTHER_BUILD,
    ),
    Symptom(
        "tf-no-gpu",
        r"Could not find cuda drivers|Found no NVIDIA driver|libcuda\.so\.1: cannot open|CUDA_ERROR_STUB_LIBRARY"
        r"|CUDA driver is a stub library",
        "the driver's own library, libcuda.so.1, is missing or is a stub",
        Remedy.APPLY,
    ),
    Symptom(
        "cuda-802",
        r"error 802\b|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        "the GPUs wait for the fabric manager",
        Remedy.FABRIC,
    ),
    Symptom(
        "cuda-803",
        r"error 803\b|unsupported display driver ?/ ?cuda driver combination|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        r"|Driver/library version mismatch",
        "the driver that is loaded and its libraries are of two versions",
        Remedy.REBOOT,
    ),
    Symptom(
        "cuda-804",
        r"error 804\b|forward compatibility was attempted|CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "a forward-compatibility libcuda is in the way, which these GPUs do not take",
        Remedy.OWN_LIBRARIES,
    ),
    Symptom(
        "xid79",
        r"GPU is lost|fallen off the bus|uncorrectable ECC|CUDA_ERROR_ECC_UNCORRECTABLE|unspecified launch failure"
        r"|hardware stack error|contained error",
        "the GPU fails",
        Remedy.KERNEL_LOG,
        codes=("wrong-result",),
    ),
    Symptom(
        "cuda-999-uvm",
        r"error 999\b|CUDA unknown error|CUDA_ERROR_UNKNOWN|unknown error",
        "CUDA does not start: mostly nvidia_uvm is not loaded, or /dev/nvidia-uvm is missing or stale",
        Remedy.UVM,
    ),
    Symptom(
        "gpu-busy",
        r"busy or unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDevicesUnavailable",
        "another program has the GPU for itself (compute mode exclusive)",
        Remedy.GPU_USERS,
    ),
    Symptom(
        "gpu-memory-full",
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED|OutOfMemoryError|_ALLOC_FAILED",
        "the memory of a GPU is in use by other programs",
        Remedy.GPU_USERS,
    ),
    Symptom(
        "cudnn",
        r"CUDNN_STATUS_|cuDNN error|DNN library (is not found|initialization failed)|Outdated cuDNN"
        r"|Unable to load cuDNN|Loaded runtime CuDNN library",
        "its cuDNN does not work on this GPU, or another one was loaded",
        Remedy.OWN_LIBRARIES,
    ),
    Symptom(
        "p2p-acs-iommu",
        r"NCCL error|ncclSystemError|ncclUnhandledCudaError|ncclRemoteError|ncclInternalError",
        "the GPUs cannot be used together: NCCL fails",
        Remedy.NCCL,
        codes=("together-hangs",),
    ),
    Symptom(
        "disk-full",
        r"No space left on device|Errno 28|Disk quota exceeded",
        "there is no room left for temporary files or shared memory",
        Remedy.MAKE_ROOM,
    ),
    Symptom(
        "library-missing",
        r"cannot open shared object file|undefined symbol|ImportError|ModuleNotFoundError|version `[\w.]+' not found",
        "a library or package that it needs is missing or does not fit",
        Remedy.ENV_SHELL,
    ),
    Symptom(
        "foreign-library",
        r"(?!)",
        "it is not the environment's own that is used",
        Remedy.OWN_LIBRARIES,
        codes=("foreign-module",),
    ),
    Symptom(
        "no-access",
        r"Permission denied|Errno 13",
        "an ordinary user may not read or run something that it needs",
        Remedy.ENV_SHELL,
    ),
    Symptom(
        "no-device",
        r"No CUDA GPUs are available|no CUDA-capable device|CUDA_ERROR_NO_DEVICE|invalid device ordinal"
        r"|CUDA_ERROR_INVALID_DEVICE|error 10[01]\b",
        "CUDA gives an ordinary user no GPU, although nvidia-smi lists them",
        Remedy.DEVICE_FILES,
        codes=("gpus-missing",),
    ),
)
_FOUND = re.compile(r"found version (\d{4,6})\b")


def diagnose(code: str, said: str, log: str) -> Symptom | None:
    """The symptom in how a script ended.

    Args:
        code: The script's own; empty for none. That GPUs are missing has a reason, which may be in the log.
        said: Its last words.
        log: What the framework and the driver said before; much of it means nothing.
    """
    known = next((s for s in SYMPTOMS if code and code in s.codes), None)
    clear = known if code != "gpus-missing" else None
    return _in(said) or clear or _in(log) or known


def _in(text: str) -> Symptom | None:
    return next((s for s in SYMPTOMS if re.search(s.words, text, re.IGNORECASE)), None)


def cause(symptom: Symptom, text: str) -> str:
    """Why, with the driver's version of CUDA decoded: 11040 is 11.4."""
    found = _FOUND.search(text)
    version = int(found.group(1)) if found else 0
    known = f": it knows CUDA {version // 1000}.{version % 1000 // 10}" if found else ""
    return symptom.cause.format(cuda=known)
