"""The simulated driver's libcuda.so.1 on a node: who may use it, and faults that come and go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from gpustrap.lab.manager import Lab, LabNode, NodeSpec

pytestmark = pytest.mark.slow
ASK = """
import ctypes, json
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = cuda.cuInit(0)
cuda.cuDeviceGetCount(ctypes.byref(count))
print(json.dumps([code, count.value]))
"""


@pytest.fixture
def node(lab: Lab, node_names: Iterator[str]) -> Iterator[LabNode]:
    name = next(node_names)
    yield lab.up([NodeSpec(name, "debian13", gpus="8x-h100-sxm:580")])[0]
    lab.remove(name)


def asked(node: LabNode, user: str = "ubuntu", **environment: str) -> list[int]:
    words = [f"{name}={value}" for name, value in environment.items()]
    done = node.exec(["env", *words, "python3", "-c", ASK], user=user)
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)
    return found


def test_a_user_starts_cuda_where_the_device_files_let_them(
    lab: Lab, node: LabNode, fault: Callable[..., None]
) -> None:
    assert asked(node) == [0, 8]
    node.exec("chmod 660 /dev/nvidia-uvm")
    assert (asked(node)[0], asked(node, "root")) == (999, [0, 8])
    node.exec("chmod 666 /dev/nvidia-uvm; chmod 660 /dev/nvidia[0-3]")
    assert asked(node) == [0, 4]
    node.exec("rm /dev/nvidia-uvm")
    assert asked(node, "root")[0] == 999
    node = lab.reboot(node.name)
    assert asked(node) == [0, 8]

    fault(node, "--fault", "fabric-pending", "--gpu", "3")
    assert asked(node)[0] == 802
    fault(node, "--clear", "--fault", "lost", "--gpu", "3")
    assert (asked(node)[0], asked(node, CUDA_VISIBLE_DEVICES="0,1,2")) == (999, [0, 3])
    fault(node, "--clear")
    fault(node, "--fault", "version-mismatch")
    assert asked(node)[0] == 803


@pytest.fixture
def fault(lab: Lab) -> Callable[..., None]:
    def inject(node: LabNode, *words: str) -> None:
        command = [sys.executable, "-m", "gpustrap", "lab", "gpu", node.name, "--lab", lab.name, *words]
        subprocess.run(command, capture_output=True, check=True, timeout=120)

    return inject
