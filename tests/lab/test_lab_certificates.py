"""Certificates of a real node with simulated GPUs: its machine is in them, and a GPU that became slow or was lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from gpustrap.lab import inventory
from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.model.site import Site

pytestmark = pytest.mark.slow
WISHES = "gpustrap_docker: false\ngpustrap_conda: false\ngpustrap_environments: []\n"


@dataclass
class World:
    """A site with one planned node; its driver runs, and nothing was applied."""

    site: Site
    node: LabNode
    lab: Lab

    def gpustrap(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GPUSTRAP_SSH_PASSWORD": self.node.password, "NO_COLOR": "1"}
        command = [sys.executable, "-m", "gpustrap", words[0], "--site", str(self.site.root), *words[1:]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        assert "Traceback" not in done.stderr
        return done

    def verify(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(self.gpustrap("verify", "--format", "json", *words).stdout))

    def fault(self, *words: str) -> None:
        command = [sys.executable, "-m", "gpustrap", "lab", "gpu", self.node.name, "--lab", self.lab.name, *words]
        subprocess.run(command, capture_output=True, check=True, timeout=120)


@pytest.fixture
def world(lab: Lab, tmp_path: Path) -> Iterator[World]:
    node = lab.up([NodeSpec("certified", gpus="4x-rtx3090:580")])[0]
    site = Site(tmp_path / "site")
    inventory.write(site, [node])
    (site.inventory / "group_vars").mkdir(exist_ok=True)
    (site.inventory / "group_vars" / "all.yml").write_text(WISHES)
    world = World(site, node, lab)
    for words in (["enroll", "--accept-new"], ["plan"]):
        done = world.gpustrap(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    yield world
    lab.remove("certified")


def worse(data: dict[str, Any]) -> set[str]:
    return {change["subject"] for change in data["changes"] if change["worse"]}


def test_what_a_node_is_and_what_got_worse(world: World, tmp_path: Path) -> None:
    first = world.verify("--out", str(tmp_path / "first"))
    (node,) = first["nodes"]
    gpus = node["hardware"]["gpus"]
    assert [gpu["name"] for gpu in gpus] == ["GeForce RTX 3090"] * 4
    assert node["hardware"]["driver"].startswith("580.")
    assert node["simulated"]
    measured = {m["subject"] for check in node["checks"] for m in check["measures"]}
    assert {gpu["uuid"] for gpu in gpus} <= measured
    kept = world.site.certificates
    assert (kept / "nodes/certified.html").read_text(encoding="utf-8").count('class="box gpu') == 4
    assert ET.parse(kept / "junit.xml").getroot().get("errors") == "0"

    world.fault("--fault", "slow=60", "--gpu", "2")
    slow = world.verify("--against", str(kept / "fleet.json"))
    place = gpus[2]["address"].removeprefix("0000:")
    assert {f"matmul-fp16 of GPU {place}", f"matmul-fp32 of GPU {place}"} <= worse(slow)
    (check,) = [check for check in slow["nodes"][0]["checks"] if check["id"] == "gpu-matmul"]
    assert check["verdict"] == "warn"
    assert f"GPU {gpus[2]['address']}: matmul-fp32" in check["reason"]
    assert "40 % behind the best of this node" in check["reason"]

    world.fault("--clear")
    world.fault("--fault", "lost", "--gpu", "1")
    lost = world.verify("--against", str(tmp_path / "first/fleet.json"))
    assert lost["exit_code"] == 12
    assert "Every GPU multiplies without a wrong bit" in worse(lost)

    world.fault("--clear")
    again = world.gpustrap("verify", "--against", str(tmp_path / "first/fleet.json"))
    assert f"Nothing differs from {tmp_path / 'first/fleet.json'}" in again.stdout
