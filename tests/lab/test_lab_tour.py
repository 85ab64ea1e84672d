"""The tour that ``./run demo`` gives, interrupted once and then run to its end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from gpustrap.lab.manager import Lab

pytestmark = pytest.mark.slow
TOUR = Path(__file__).parents[2] / "docs/tour.sh"
LIMIT = 1200  # seconds


def start(directory: Path, lab: Lab) -> subprocess.Popen[str]:
    """Begin the tour in a process group of its own, as a terminal would."""
    argv = ["sh", str(TOUR), str(directory), lab.name]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTRAP_")}
    return subprocess.Popen(
        argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ, start_new_session=True
    )


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    return tmp_path / "tour"


def test_the_tour_can_be_interrupted_and_run_again(lab: Lab, tour: Path) -> None:
    first = start(tour, lab)
    assert first.stdout is not None
    for line in first.stdout:
        if line.startswith("$ gpustrap enroll"):
            os.killpg(first.pid, signal.SIGINT)
    assert first.wait(timeout=LIMIT) == 130

    second = start(tour, lab)
    said, _ = second.communicate(timeout=LIMIT)
    assert second.returncode == 0, said[-4000:]
    assert "2 nothing to change; 2 verified" in said
    assert "node1  ✗ 3 differences" in said
    assert said.lower().count("simulated") > 5
    assert (tour / "site/.gpustrap/runs").is_dir()
