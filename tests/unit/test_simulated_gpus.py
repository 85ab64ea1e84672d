"""A node of the lab says itself that its GPUs are simulated, and everything that rests on them does then."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host
from gpustrap.ansible_plugins.module_utils.gpustrap_node.nvidia import nvidia_facts
from gpustrap.catalog.loader import load_catalog
from gpustrap.commands.plan import decide
from gpustrap.lab.gpus import machine, state
from gpustrap.model.facts import Facts
from gpustrap.model.request import Request
from gpustrap.report.inspect_text import render


def facts(*, simulated: bool) -> Facts:
    gpu = {"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300"}
    return Facts.model_validate(
        {
            "os": {"id": "debian", "version_id": "13", "architecture": "x86_64"},
            "kernel": {"running": "6.12.0-1-amd64"},
            "pci": [gpu],
            "package_manager": {"kind": "apt"},
            "nvidia": {"simulated": simulated},
        }
    )


@pytest.mark.parametrize("profile", ["4x-rtx3090", "no-gpu"])
def test_the_node_itself_says_it(tmp_path: Path, profile: str) -> None:
    assert nvidia_facts(Host(str(tmp_path)))["simulated"] is False
    state.write(tmp_path / "run/lab-gpu/state", machine.machine(profile))
    assert nvidia_facts(Host(str(tmp_path)))["simulated"] is True


def test_what_rests_on_simulated_gpus_is_simulated_without_the_variable_of_the_site() -> None:
    for simulated in (True, False):
        lock = decide("n1", facts(simulated=simulated), Request(docker=True), load_catalog(), offline=True).lock
        assert lock is not None
        assert lock.simulated is simulated
        marked = {choice.item for choice in lock.choices if choice.simulated}
        assert ({"gpus", "driver", "cuda"} <= marked) is simulated
        assert "docker" not in marked  # what has nothing to do with GPUs is as real as before


def test_inspect_says_it() -> None:
    for simulated in (True, False):
        console = Console(file=io.StringIO(), width=120, color_system=None)
        console.print(render({"n1": facts(simulated=simulated)}))
        assert ("(simulated)" in console.file.getvalue()) is simulated
