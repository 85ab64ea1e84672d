"""vllm.platforms: what vLLM takes this machine for. It is CUDA where NVML finds a GPU."""

from __future__ import annotations

import ctypes


def _gpus() -> int:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return 0
    return count.value


class Platform:
    """What runs the model."""

    def is_cuda(self) -> bool:
        """Whether it is NVIDIA's GPUs."""
        return isinstance(self, CudaPlatform)


class CudaPlatform(Platform):
    """NVIDIA's GPUs."""


class UnspecifiedPlatform(Platform):
    """None was found."""


current_platform = CudaPlatform() if _gpus() else UnspecifiedPlatform()
