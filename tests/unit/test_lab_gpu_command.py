"""``gpustrap lab gpu``: what it shows, and what it says to a person who got it wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpustrap.cli.app import app
from gpustrap.commands import lab_gpus
from gpustrap.errors import GpustrapError
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus.machine import Fault, Machine, Setting


class FakeLab:
    """A lab with one node, whose GPUs are a value; ``now`` and ``later`` are what it runs with and boots with."""

    def __init__(self, there: Machine, directory: Path) -> None:
        self.name = "lab"
        self.now = self.later = there
        self.directory = directory

    def node(self, name: str) -> str:
        return name

    def gpus(self, name: str) -> Path:
        return self.directory / name


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeLab:
    fake = FakeLab(gpus.machine("4x-rtx3090", gpus.driver("580")), tmp_path)
    (tmp_path / "n1").mkdir()
    monkeypatch.setattr(lab_gpus, "Lab", lambda _name: fake)
    monkeypatch.setattr(lab_gpus.node, "running", lambda _node: fake.now)
    monkeypatch.setattr(lab_gpus.node, "read", lambda _directory: fake.later)
    monkeypatch.setattr(lab_gpus.node, "change", lambda _node, there: setattr(fake, "now", there))
    monkeypatch.setattr(lab_gpus.node, "prepare", lambda _directory, there: setattr(fake, "later", there))
    return fake


def problem(**words: Any) -> Any:
    with pytest.raises(GpustrapError) as caught:
        lab_gpus.change("n1", "lab", **words)
    [found] = caught.value.problems
    return found


def test_faults_come_and_go(lab: FakeLab) -> None:
    found = lab_gpus.change("n1", "lab", kinds=["xid=48", "hot"], gpu=2)
    assert lab.now.faults == (Fault("xid", 2, "48"), Fault("hot", 2))
    assert [one.faults for one in found.gpus] == [(), (), ("xid=48", "hot"), ()]
    found = lab_gpus.change("n1", "lab", kinds=["version-mismatch"])
    assert found.faults == ("version-mismatch=535.161.07",)
    lab_gpus.change("n1", "lab", clearing=True, gpu=2)
    assert lab.now.faults == (Fault("version-mismatch", -1, "535.161.07"),)
    found = lab_gpus.change("n1", "lab", kinds=["lost"], gpu=0, clearing=True)
    assert [one.faults for one in found.gpus] == [("lost",), (), (), ()]
    lab_gpus.change("n1", "lab", clearing=True)
    assert lab.now.faults == ()


def test_the_next_boot_is_another_matter(lab: FakeLab) -> None:
    lab_gpus.change("n1", "lab", kinds=["nouveau"], next_boot=True)
    assert lab.now.faults == ()
    assert lab.later.faults == (Fault("nouveau"),)


def test_settings_are_told_in_words(lab: FakeLab) -> None:
    pairs = {"persistence": "1", "power_limit": "300000", "mig": "1", "gi_3": "x", "gi_4": "x", "temp": "40"}
    settings = tuple(Setting(1, *pair) for pair in pairs.items())
    lab.now = replace(gpus.machine("8x-h100-sxm", gpus.driver()), settings=settings)
    said = lab_gpus.show("n1", "lab").gpus[1].settings
    assert said == ("persistence mode on", "power limit 300 W", "MIG on", "2 MIG instances")


@pytest.mark.parametrize(
    ("words", "message", "remedy"),
    [
        ({"kinds": ["lost"]}, "it is a fault of one GPU", "gpustrap lab gpu n1 --fault lost --gpu 0"),
        ({"kinds": ["nvml-error"], "gpu": 1}, "it is a fault of the whole machine", "--fault nvml-error"),
        ({"kinds": ["on-fire"], "gpu": 1}, "there is no such fault", "gpustrap lab gpu n1 --fault lost --gpu 0"),
        ({"kinds": ["nouveau"]}, "decided at the boot", "gpustrap lab gpu n1 --fault nouveau --next-boot"),
        (
            {"kinds": ["ecc-pending"], "gpu": 0},
            "NVIDIA GeForce RTX 3090 cannot have ecc-pending",
            "gpustrap lab gpu n1",
        ),
        ({"kinds": ["lost"], "gpu": 4}, "4x-rtx3090 has no GPU 4", "gpustrap lab gpu n1"),
    ],
)
def test_what_cannot_be_is_told(lab: FakeLab, words: dict[str, Any], message: str, remedy: str) -> None:
    found = problem(**words)
    assert message in found.message
    assert remedy in found.remedy
    assert lab.now.faults == ()


def test_an_unknown_fault_lists_those_there_are(lab: FakeLab) -> None:
    assert "gsp-timeout" in problem(kinds=["on-fire"]).evidence


def test_a_node_without_gpus(lab: FakeLab) -> None:
    (lab.directory / "n1").rmdir()
    assert problem(kinds=["nvml-error"]).code == "lab-no-gpus"


def test_command_line(lab: FakeLab) -> None:
    done = CliRunner().invoke(app, ["lab", "gpu", "n1", "--fault", "lost", "--gpu", "1", "--format", "json"])
    data = json.loads(done.stdout)
    assert (data["simulated"], data["driver"], data["gpus"][1]["faults"]) == (True, "580.178.04 open", ["lost"])
    done = CliRunner().invoke(app, ["lab", "gpu", "n1"])
    assert "0000:41:00.0" in done.stdout
    assert "Simulated: 4x-rtx3090 with driver 580.178.04 open." in done.stderr
