"""A lab whose `lab up` was killed in the middle: `lab down` finds what is left, whatever that is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustrap.lab import container, network, state
from gpustrap.lab.engine import LABEL_LAB
from gpustrap.lab.manager import Lab, all_statuses

pytestmark = pytest.mark.slow
SECONDS = 120


def bridges() -> set[str]:
    """The host's network interfaces that are bridges."""
    done = subprocess.run(("ip", "-json", "link", "show", "type", "bridge"), capture_output=True, check=True)
    return {link["ifname"] for link in json.loads(done.stdout or "[]") if link}


def left(lab: Lab) -> dict[str, list[str]]:
    """Everything on this machine that is the lab's."""
    condition = f"label={LABEL_LAB}={lab.name}"
    return {
        "containers": [one["Id"] for one in lab.engine.list("ps", condition)],
        "volumes": [one["Name"] for one in lab.engine.list("volume", condition)],
        "networks": [one["name"] for one in lab.engine.list("network", condition)],
        "files": [str(path) for path in state.root().glob(f"{lab.name}/**/*") if path.is_file()],
        "listed": [one.name for one in all_statuses() if one.lab == lab.name],
    }


POINTS: dict[str, Callable[[Lab], bool]] = {
    "before the bridge": lambda lab: (lab.directory / "lab.lock").exists(),
    "with a bridge": lambda lab: network.find(lab.engine, lab.name) is not None,
    "with a volume": lambda lab: lab.engine.exists("volume", container.volume(lab.name, "n1")),
    "with a container": lambda lab: lab.engine.exists("container", container.name(lab.name, "n1")),
    "while it boots": lambda lab: any(one.state == "running" for one in lab.status()),
}


@pytest.mark.parametrize("point", POINTS)
def test_down_finds_what_a_killed_up_left(lab: Lab, point: str, tmp_path: Path) -> None:
    before = bridges()
    own = Lab(f"killed-{os.getpid()}")  # not "test-": another run would take it for a crashed one
    command = [sys.executable, "-m", "gpustrap", "lab", "up", "n1:debian13", "--lab", own.name]
    started = subprocess.Popen(
        [*command, "--gpus", "1x-t4", "--site", str(tmp_path / "site")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not POINTS[point](own):
            assert started.poll() is None, "it ended before that point"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
        # What podman was doing for it then goes on to its end, as after a crash of gpustrap alone.
        time.sleep(3)
        own.down()
        assert left(own) == {"containers": [], "volumes": [], "networks": [], "files": [], "listed": []}
        assert bridges() - before == set()
    finally:
        started.kill()
        own.down()
