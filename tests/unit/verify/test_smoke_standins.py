"""The smoke scripts on simulated GPUs, with stand-ins of frameworks and of libcuda.so.1: right, and with faults."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpustrap.lab.gpus import build, state
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus.machine import Fault, Machine, inject
from gpustrap.lab.standins import frameworks_data
from gpustrap.lab.standins.frameworks_index import Package
from gpustrap.verify.gpustrap_verify import smoke_files, symptoms
from gpustrap.verify.gpustrap_verify.smoke.common import FLAGS, START, STEP

SITE_PACKAGES = sysconfig.get_path("purelib", vars={"base": "", "platbase": ""}).lstrip("/")
# Framework -> script, and what goes into its environment, by the beginning of a package's name.
FRAMEWORKS = {
    "torch": ("pytorch", ("torch",)),
    "jax": ("jax", ("jax",)),
    "tensorflow": ("tensorflow", ("tensorflow", "nvidia-")),
}


def newest(packages: list[Package], start: str) -> Iterator[Package]:
    """Of every package whose name begins so, the newest for this machine; which Python it is for does not matter."""
    here = [p for p in packages if p.tag and "aarch64" not in p.tag and p.name.startswith(start)]
    for name in {p.name for p in here}:
        yield max(
            (p for p in here if p.name == name), key=lambda p: [int(n) for n in p.version.partition("+")[0].split(".")]
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environments with a framework each, the libraries of the driver, and the scripts."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the stand-in for libcuda.so.1 cannot be built")
    place = tmp_path_factory.mktemp("smoke")
    offered = [*frameworks_data.pypi(), *frameworks_data.pytorch("cu130")]
    for framework, (_script, starts) in FRAMEWORKS.items():
        directory = place / framework
        for package in (p for start in starts for p in newest(offered, start)):
            with zipfile.ZipFile(io.BytesIO(package.pack())) as archive:
                archive.extractall(directory / SITE_PACKAGES)
        (directory / "bin").mkdir()
        (directory / "bin/python").symlink_to(Path(sys.executable).resolve())
        (directory / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    for name in ("lib", "home"):
        (place / name).mkdir()
    build.library(place / "lib")
    build.cuda_library(place / "lib")
    smoke_files.write(place)
    return place


def run(place: Path, framework: str, there: Machine, *, seconds: float = 60) -> tuple[dict[str, Any], str]:
    """The answer of a framework's script on a machine, and what was said on the way."""
    state.write(place / "state", there)
    names = [f"GPU {number}" for number in range(len(there.gpus))]
    wanted = {"device": "gpu", "gpus": names, "size": 24, "thorough": True, "modules": []}
    wanted |= {"seconds": seconds, "place": str(place / "home")}
    script = f"smoke.{FRAMEWORKS[framework][0]}"
    environment = {
        "LD_LIBRARY_PATH": str(place / "lib"),
        "LAB_GPU_STATE": str(place / "state"),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [place / framework / "bin/python", *FLAGS, "-c", START, str(place), script, json.dumps(wanted)],
        env=environment | {"HOME": str(place / "home")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.stderr


def healthy(profile: str = "2x-rtx4090", branch: str = "580") -> Machine:
    return gpus.machine(profile, gpus.driver(branch, "open"))


@pytest.mark.parametrize(
    ("framework", "last"),
    [
        ("torch", "DistributedDataParallel with 2 processes"),
        ("jax", "samples on 2 devices"),
        ("tensorflow", "MirroredStrategy on 2 devices"),
    ],
)
def test_every_gpu_and_all_together(place: Path, framework: str, last: str) -> None:
    answer, log = run(place, framework, healthy())
    assert answer["ok"], (answer, log)
    steps = [line.removeprefix(STEP) for line in log.splitlines() if line.startswith(STEP)]
    for gpu in ("GPU 0", "GPU 1"):
        for what in ("matrix product", "convolution", "matrix product in bfloat16", "a model learns"):
            assert f"{gpu}: {what}" in steps
    assert steps[-1].endswith(last)


@pytest.mark.parametrize(
    ("framework", "there", "symptom"),
    [
        ("torch", healthy(branch="535"), "driver-too-old"),
        ("jax", healthy(branch="535"), "driver-too-old"),
        ("torch", inject(healthy(), Fault("wrong-bit", gpu=1, value="0,0,0,20")), "xid79"),
        ("jax", inject(healthy(), Fault("wrong-bit", gpu=1, value="0,0,0,20")), "xid79"),
        ("tensorflow", inject(healthy(), Fault("wrong-bit", gpu=1, value="0,0,0,20")), "xid79"),
        ("torch", inject(healthy(), Fault("cuda-error", value="999")), "cuda-999-uvm"),
        ("torch", inject(healthy(), Fault("cuda-error", value="802")), "cuda-802"),
        ("jax", inject(healthy(), Fault("cuda-error", value="802")), "cuda-802"),
        ("torch", inject(healthy(), Fault("kernel-error", gpu=0, value="719")), "xid79"),
        ("torch", inject(healthy(), Fault("load-error", gpu=0, value="209")), "no-kernel-image"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_fault_is_told_in_the_frameworks_words(place: Path, framework: str, there: Machine, symptom: str) -> None:
    answer, log = run(place, framework, there)
    assert not answer["ok"]
    found = symptoms.diagnose(answer["code"], answer["said"], log)
    assert found is not None, (answer, log)
    assert found.name == symptom, (answer, log)


def test_a_wrong_result_names_the_gpu_and_the_entry(place: Path) -> None:
    answer, _ = run(place, "torch", inject(healthy(), Fault("wrong-bit", gpu=1, value="0,3,5,20")))
    assert answer["code"] == "wrong-result"
    assert answer["said"].startswith("GPU 1: 1 of 24 rows are wrong; row 3, column 5 is")
