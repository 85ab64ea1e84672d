"""The simulated driver's libcuda.so.1 on a node: who may use it, and faults that come and go."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpustrap
from gpustrap.lab.manager import Lab, LabNode, NodeSpec

pytestmark = pytest.mark.slow
ASK = """
import ctypes, json
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = cuda.cuInit(0)
cuda.cuDeviceGetCount(ctypes.byref(count))
print(json.dumps([code, count.value]))
"""


PROGRAM = ("verify/gpustrap_verify", "verify/kernels", "ansible_plugins/module_utils/gpustrap_node")


@pytest.fixture
def node(lab: Lab, node_names: Iterator[str], request: pytest.FixtureRequest) -> Iterator[LabNode]:
    name = next(node_names)
    yield lab.up([NodeSpec(name, "debian13", gpus=request.param)])[0]
    lab.remove(name)


def asked(node: LabNode, user: str = "ubuntu", **environment: str) -> list[int]:
    words = [f"{name}={value}" for name, value in environment.items()]
    done = node.exec(["env", *words, "python3", "-c", ASK], user=user)
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("node", ["8x-h100-sxm:580"], indirect=True)
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


@pytest.mark.parametrize("node", ["2x-rtx4090:580"], indirect=True)
def test_verify_finds_the_wrong_bit_of_the_gpu_that_has_it(node: LabNode, fault: Callable[..., None]) -> None:
    """What a node needs for it is the driver and its own Python."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in PROGRAM:
            archive.add(Path(gpustrap.__file__).parent / name, Path(name).name)
    assert node.exec("mkdir /tmp/program && tar -x -C /tmp/program -f -", stdin=stream.getvalue()).returncode == 0

    def verify() -> tuple[int, dict[str, Any]]:
        command = "cd /tmp/program && python3 -m gpustrap_verify.gpu_main --only gpu-matmul --report /tmp/report.json"
        done = node.exec(command, timeout=600)
        report = node.exec("cat /tmp/report.json")
        assert report.returncode == 0, done.stderr
        return done.returncode, json.loads(report.stdout)["checks"]["gpu-matmul"]

    code, found = verify()
    assert (code, found["verdict"]) == (0, "pass"), found
    fault(node, "--fault", "wrong-bit=2,7,9,13", "--gpu", "1")
    code, found = verify()
    assert (code, found["verdict"]) == (12, "fail"), found
    assert found["reason"].startswith("GPU 0000:02:00.0 (NVIDIA GeForce RTX 4090) multiplies wrong: 1 wrong element")
    assert "row 7, column 9" in found["evidence"]
    assert "bits 00002000" in found["evidence"]
