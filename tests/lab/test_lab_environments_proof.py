"""An environment is planned, built and proved on simulated GPUs; each way in which it does not work is found and named.

The index, the frameworks and the GPUs are the lab's; uv, the role, the lock and the checks are the real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.lab import inventory
from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.model.site import Site

pytestmark = pytest.mark.slow
WANTED = {"gpustrap_environments": ["torch"], "gpustrap_docker": False, "gpustrap_conda": False}
PLACE = "/opt/gpustrap/envs/torch/current"


@dataclass
class World:
    """A site with one node, whose environment is built."""

    lab: Lab
    site: Site
    node: LabNode

    def gpustrap(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GPUSTRAP_SSH_PASSWORD": self.node.password, "NO_COLOR": "1"}
        command = [sys.executable, "-m", "gpustrap", *words, "--site", str(self.site.root)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1500)
        assert "Traceback" not in done.stderr
        return done

    def check(self) -> dict[str, Any]:
        """What verify says of the environment."""
        data = json.loads(self.gpustrap("verify", "--level", "standard", "--format", "json").stdout)
        return next(c for node in data["nodes"] for c in node["checks"] if c["id"] == "environment-torch")

    def fault(self, *words: str) -> None:
        command = [sys.executable, "-m", "gpustrap", "lab", "gpu", self.node.name, "--lab", self.lab.name, *words]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def sh(self, script: str) -> str:
        done = self.node.exec(script)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


@pytest.fixture(scope="module")
def world(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    node = lab.up([NodeSpec("proof", "debian13", gpus="2x-rtx4090:580")])[0]
    site = Site(tmp_path_factory.mktemp("proof") / "site")
    inventory.write(site, [node], lab.standins(lambda _step: None))
    variables = site.inventory / "host_vars" / node.name
    variables.mkdir(parents=True, exist_ok=True)
    (variables / "environments.yml").write_text(yaml.safe_dump(WANTED))
    world = World(lab, site, node)
    for words in (["enroll", "--accept-new"], ["plan"], ["apply", "--no-verify", "--tags", "ml_environments"]):
        done = world.gpustrap(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    yield world
    lab.remove("proof")


def test_every_gpu_is_used_and_all_together(world: World) -> None:
    found = world.check()
    assert (found["verdict"], found["reason"]) == ("pass", "on each of 2 GPUs and on all together"), found
    assert found["simulated"]
    assert world.sh("ls /var/tmp | grep gpustrap-verify; true") == ""


def test_list_and_export(world: World) -> None:
    (row,) = json.loads(world.gpustrap("env", "list", "--format", "json").stdout)["environments"]
    assert (row["name"], row["framework"], row["state"]) == ("torch", "pytorch", "ready")
    exported = world.gpustrap("env", "export", world.node.name, "torch").stdout
    assert exported == next(Path(world.site.root / "environments").glob("torch-*.txt")).read_text()


@pytest.mark.parametrize(
    ("fault", "reason", "remedy"),
    [
        (["wrong-bit", "--gpu", "1"], "the GPU fails", "xid"),
        (["cuda-error=802"], "wait for the fabric manager", "nvidia-fabricmanager"),
        (["cuda-error=999"], "nvidia_uvm", "modprobe nvidia-uvm"),
        (["lost", "--gpu", "1"], "nvidia-smi does not work: the GPU fails", "xid"),
    ],
    ids=["wrong-result", "cuda-802", "cuda-999-uvm", "xid79"],
)
def test_what_is_wrong_with_a_gpu_is_found_through_the_framework(
    world: World, fault: list[str], reason: str, remedy: str
) -> None:
    world.fault("--fault", *fault)
    try:
        found = world.check()
    finally:
        world.fault("--clear")
    assert reason in found["reason"], found
    assert remedy in found["remedy"]


def test_a_package_changed_by_hand_is_drift_and_comes_back(world: World) -> None:
    info = world.sh(f"ls -d {PLACE}/lib/python3*/site-packages/torch-*.dist-info").strip()
    world.sh(f"mv {info} {info.replace('torch-', 'numpy-')}")
    assert world.check()["reason"].startswith("somebody changed it by hand: gone torch-")
    drifted = world.gpustrap("drift")
    assert drifted.returncode in {10, 13}, drifted.stdout  # only some roles were applied, which is not in sync either
    assert "gone torch-" in drifted.stdout
    assert "changed by hand" in world.gpustrap("env", "list").stdout
    done = world.gpustrap("apply", "--no-verify", "--tags", "ml_environments")
    assert done.returncode == 0, done.stdout + done.stderr
    assert world.check()["verdict"] == "pass"
