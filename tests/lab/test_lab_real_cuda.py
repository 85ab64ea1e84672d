"""Real parts, no stand-ins: the CUDA toolkit of Debian 13's archive compiles a kernel. 2 GB to fetch, ten minutes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpustrap.lab.manager import LabNode

pytestmark = pytest.mark.slow

INSTALL = """export DEBIAN_FRONTEND=noninteractive
sed -i 's/^Components: main.*/Components: main contrib non-free non-free-firmware/' /etc/apt/sources.list.d/*.sources
apt-get -q update && apt-get -q -y install --no-install-recommends nvidia-cuda-toolkit 2>&1 && apt-get clean"""
KERNEL = b"""__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


def test_real_toolkit_compiles_a_kernel(make_node: Callable[..., LabNode]) -> None:
    node = make_node("debian13")
    installed = node.exec(INSTALL, timeout=7200)
    assert installed.returncode == 0, installed.stdout[-3000:]
    assert node.exec("cat >/tmp/saxpy.cu", stdin=KERNEL).returncode == 0

    cubin = node.exec("cd /tmp && nvcc --cubin -arch=sm_86 saxpy.cu && cuobjdump --dump-sass saxpy.cubin", timeout=1200)
    assert cubin.returncode == 0, cubin.stderr
    assert "sm_86" in cubin.stdout
    assert "FFMA" in cubin.stdout, "machine code of the card: one fused multiply-add"

    both = node.exec("cd /tmp && nvcc -c saxpy.cu -o saxpy.o && nm saxpy.o", timeout=1200)
    assert both.returncode == 0, both.stderr
    assert "saxpy" in both.stdout

    old = node.exec("cd /tmp && nvcc --cubin -arch=sm_20 saxpy.cu")
    assert old.returncode != 0
    assert "Value 'sm_20' is not defined for option 'gpu-architecture'" in old.stderr + old.stdout
