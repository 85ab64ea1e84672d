"""The smoke scripts with the real frameworks, on the CPU: JAX, TensorFlow, and PyTorch with its processes over gloo."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from gpustrap.verify.gpustrap_verify import smoke_files
from gpustrap.verify.gpustrap_verify.smoke.common import FLAGS, START, STEP

ROOM = 12 << 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "script", "last"),
    [
        ("jax", "jax", "samples on 2 devices"),
        pytest.param("tensorflow-cpu", "tensorflow", "MirroredStrategy on 2 devices", marks=pytest.mark.big),
        pytest.param("torch", "pytorch", "DistributedDataParallel with 2 processes", marks=pytest.mark.big),
    ],
)
def test_framework_on_the_cpu(package: str, script: str, last: str, tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < ROOM:
        pytest.skip(f"{tmp_path} has not the room for {package}")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    got = subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-cache-dir", package], capture_output=True, text=True
    )
    if got.returncode:
        pytest.skip(f"pip cannot install {package} here: {got.stderr[-300:]}")
    smoke_files.write(tmp_path)
    (tmp_path / "home").mkdir()
    wanted = {
        "device": "cpu",
        "gpus": [],
        "size": 512,
        "thorough": True,
        "seconds": 120,
        "place": str(tmp_path / "home"),
        "modules": [],
    }
    done = subprocess.run(
        [python, *FLAGS, "-c", START, str(tmp_path), f"smoke.{script}", json.dumps(wanted)],
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
        timeout=600,
    )
    answer = json.loads(done.stdout)
    assert answer["ok"], (answer, done.stderr[-2000:])
    steps = [line for line in done.stderr.splitlines() if line.startswith(STEP)]
    assert steps[-1].endswith(last), sys.stderr.write(done.stderr)
    shutil.rmtree(tmp_path / "env")
