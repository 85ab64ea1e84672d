"""Stand-in frameworks: verify's own scripts pass on simulated GPUs, and fail as on real ones, in the real words."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gpustrap.lab.gpus import build, state
from gpustrap.lab.gpus.node import parse
from gpustrap.lab.standins import frameworks_data
from gpustrap.verify.gpustrap_verify.smoke import common

MINE = ("py3", "cp38", "cp312", f"cp{sys.version_info.major}{sys.version_info.minor}")
ROOT = Path(common.__file__).parent.parent


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("libraries")
    build.cuda_library(place)
    build.library(place)
    return place


class Box:
    """An environment with stand-ins, on a machine with simulated GPUs or none."""

    def __init__(self, place: Path, libraries: Path, gpus: str) -> None:
        self.place, self.libraries, self.gpus = place, libraries, gpus
        venv.create(place / "venv", with_pip=False)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = place / "venv" / "lib" / version / "site-packages"
        if gpus:
            state.write(place / "state", parse(gpus, "lab/node"))

    def install(self, *wanted: str, variant: str = "") -> Box:
        """Unpack wheels: ``name==version``."""
        every = list(frameworks_data.pytorch(variant)) if variant else []
        for text in wanted:
            name, _, version = text.partition("==")
            from_ = every if variant and name == "torch" else frameworks_data.pypi()
            package = next(
                one
                for one in from_
                if one.name == name
                and one.version.partition("+")[0] == version
                and one.tag.partition("-")[0] in MINE
                and one.tag.endswith(("x86_64", "any"))
            )
            zipfile.ZipFile(io.BytesIO(package.pack())).extractall(self.packages)
        return self

    def environment(self) -> dict[str, str]:
        own = {"LAB_GPU_STATE": str(self.place / "state"), "LD_LIBRARY_PATH": str(self.libraries)} if self.gpus else {}
        return {"PATH": os.environ["PATH"], **own}

    def python(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self.place / "venv" / "bin" / "python"), *common.FLAGS, "-c", program, *words]
        return subprocess.run(argv, env=self.environment(), capture_output=True, text=True, timeout=120)

    def smoke(self, script: str, gpus: int) -> dict[str, Any]:
        """The answer of one of verify's scripts."""
        device = "gpu" if gpus else "cpu"
        names = [f"GPU {number}" for number in range(gpus)]
        (self.place / "meet").mkdir()
        wanted = {"device": device, "gpus": names, "size": 24, "thorough": True, "seconds": 60, "modules": []}
        wanted["place"] = str(self.place / "meet")
        done = self.python(common.START, str(ROOT), f"smoke.{script}", json.dumps(wanted))
        return {**json.loads(done.stdout), "stderr": done.stderr}


@pytest.fixture
def box(tmp_path: Path, libraries: Path) -> Any:
    return lambda gpus="": Box(tmp_path, libraries, gpus)


CUDA_12 = ("nvidia-cudnn-cu12==9.28.0.42", "nvidia-cublas-cu12==12.9.3.13", "nvidia-cuda-runtime-cu12==12.9.79")


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("pytorch", ("torch==2.14.0",)),
        ("tensorflow", ("tensorflow==2.21.0", *CUDA_12)),
        ("jax", ("jax==0.12.0.1", "jax-cuda13-plugin==0.12.0.1")),
    ],
)
@pytest.mark.parametrize(("gpus", "count"), [("2x-rtx4090:580", 2), ("", 0)])
def test_scripts_of_verify_pass(box: Any, script: str, wanted: tuple[str, ...], gpus: str, count: int) -> None:
    answer = box(gpus).install(*wanted).smoke(script, count)
    assert answer["ok"], answer
    assert answer["devices"] == max(count, 1)


def test_no_kernel_image(box: Any) -> None:
    one = box("1x-gtx1080ti:580:proprietary").install("torch==2.14.0")
    assert one.smoke("pytorch", 1)["code"] == "no-kernel-image"
    done = one.python("import torch; a = torch.ones(2, 2, device='cuda'); a @ a")
    assert "CUDA error: no kernel image is available for execution on the device" in done.stderr
    assert "GeForce GTX 1080 Ti with CUDA capability sm_61 is not compatible with the current PyTorch" in done.stderr


def test_the_last_build_for_old_cards_has_their_code(box: Any) -> None:
    assert box("1x-gtx1080ti:580:proprietary").install("torch==2.14.0", variant="cu126").smoke("pytorch", 1)["ok"]


def test_driver_too_old(box: Any) -> None:
    one = box("1x-rtx3090:570").install("torch==2.14.0")
    answer = one.smoke("pytorch", 1)
    assert "The NVIDIA driver on your system is too old (found version 12080)" in answer["said"]
    done = one.python("import torch; print(torch.cuda.is_available(), torch.cuda.get_arch_list())")
    assert done.stdout == "False []\n"


def test_driver_of_a_lower_minor_does(box: Any) -> None:
    assert box("1x-rtx3090:580").install("torch==2.15.0").smoke("pytorch", 1)["ok"]


def test_tf_no_gpu(box: Any) -> None:
    """Without [and-cuda] TensorFlow finds no GPU, says so, and goes on."""
    one = box("1x-rtx3090:580").install("tensorflow==2.21.0")
    answer = one.smoke("tensorflow", 1)
    assert answer["code"] == "gpus-missing"
    assert "Cannot dlopen some GPU libraries." in answer["stderr"]


def test_tf_without_a_driver_goes_on_with_the_cpu(box: Any) -> None:
    program = "import tensorflow as t; print(t.config.list_physical_devices('GPU'))"
    done = box().install("tensorflow==2.21.0").python(program)
    assert done.stdout == "[]\n"
    assert "Could not find cuda drivers on your machine, GPU will not be used." in done.stderr


def test_a_build_without_cuda_says_so(box: Any) -> None:
    one = box("1x-rtx3090:580").install("torch==2.14.0", variant="cpu")
    assert one.smoke("pytorch", 1)["code"] == "cpu-build"
    assert "Torch not compiled with CUDA enabled" in one.python("import torch; torch.ones(1, device='cuda')").stderr


def test_two_devices_in_one_operation(box: Any) -> None:
    done = (
        box("2x-rtx4090:580")
        .install("torch==2.14.0")
        .python("import torch; torch.ones(2, 2, device='cuda:1') @ torch.ones(2, 2, device='cuda:0')")
    )
    words = "Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cuda:0!"
    assert words in done.stderr


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("wrong-bit=0,1,2,20", "wrong-result", "row 1, column 2"),
        ("kernel-error=719", "", "unspecified launch failure"),
        ("load-error=209", "", "no kernel image is available"),
    ],
)
def test_faults_of_the_gpu_are_seen(box: Any, fault: str, code: str, words: str) -> None:
    from gpustrap.lab.gpus.machine import Fault, inject

    one = box("2x-rtx4090:580").install("torch==2.14.0")
    kind, _, value = fault.partition("=")
    state.write(one.place / "state", inject(parse("2x-rtx4090:580", "lab/node"), Fault(kind, 1, value)))
    answer = one.smoke("pytorch", 2)
    assert not answer["ok"]
    assert answer["at"].startswith("GPU 1: matrix product")
    assert answer["code"] == code
    assert words in answer["said"]


def test_vllm_takes_simulated_gpus_for_cuda(box: Any) -> None:
    program = "from vllm.platforms import current_platform as p; print(p.is_cuda())"
    one = box("1x-rtx3090:580").install("vllm==0.33.0", "torch==2.14.0")
    assert one.python(program).stdout == "True\n"
    one.gpus = ""
    assert one.python(program).stdout == "False\n"
