"""The driver of one node through its life, as a user changes it: every change is one plan and one apply --reboot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_driver_files as files
from gpustrap.lab.gpus import node as gpus
from gpustrap.lab.gpus.machine import Fault, inject
from gpustrap.lab.manager import Lab, NodeSpec

pytestmark = pytest.mark.slow

OLD, NEW = "580.178.04", "595.71.05"
OPEN, PROPRIETARY = "NVIDIA UNIX Open Kernel Module for x86_64", "NVIDIA UNIX x86_64 Kernel Module"
ONLY_THE_DRIVER = {
    "gpustrap_conda": False,
    "gpustrap_environments": [],
    "gpustrap_docker": False,
    "gpustrap_cuda_version": "none",
    "gpustrap_reboot_minutes": 10,
}
LOADED = "sed -n '1s/^NVRM version: *//p' /proc/driver/nvidia/version"
SEEN = {
    "boot": "cat /proc/sys/kernel/random/boot_id",
    "loaded": f"test ! -e /proc/driver/nvidia/version || {LOADED}",
    "smi": "! command -v nvidia-smi >/dev/null || nvidia-smi --query-gpu=driver_version --format=csv,noheader|uniq -c",
    "drivers": "for d in /sys/bus/pci/devices/*/driver; do basename $(readlink -f $d); done | sort | uniq -c",
    "packages": "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' '*nvidia*' libcuda1 2>/dev/null "
    "| sed -n 's/^installed //p'",
    "dpkg": "dpkg --audit",
    "preferences": f"cat {files.PREFERENCES} 2>/dev/null || :",
    "upgrades": "apt-config dump Unattended-Upgrade::Package-Blacklist",
    "candidate": "apt-cache policy libcuda1 | sed -n 's/^ *Candidate: //p'",
}


@dataclass
class Life:
    """What each step's apply said, and what was on the node after it."""

    applied: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, dict[str, str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def life(lab: Lab, node_names: Iterator[str], operate: Callable[..., Any]) -> Iterator[Life]:
    """Nouveau has the GPUs; then a driver, the same again, a newer one, the older one, the other flavour and back."""
    name = next(node_names)
    told = Life()
    node = lab.up([NodeSpec(name, "debian12", gpus="4x-rtx3090")])[0]
    gpus.prepare(lab.gpus(name), inject(gpus.read(lab.gpus(name)), Fault("nouveau")))
    lab.reboot(name)
    operator = operate(node, lab.standins())

    def step(title: str, *words: str, **wishes: str) -> None:
        if wishes:
            operator.wish(**ONLY_THE_DRIVER, **wishes)
        told.applied[title] = operator.call("apply", *words)
        told.seen[title] = {what: operator.on_node(command) for what, command in SEEN.items()}

    step("check", "--check", gpustrap_driver_branch="580")
    step("fresh", "--reboot")
    step("again", "--reboot")
    step("upgrade", "--reboot", gpustrap_driver_branch="595")
    step("downgrade", "--reboot", gpustrap_driver_branch="580")
    step("proprietary", "--reboot", gpustrap_driver_branch="580", gpustrap_driver_flavour="proprietary")
    step("open", "--reboot", gpustrap_driver_branch="580", gpustrap_driver_flavour="open")
    yield told
    lab.remove(name)


def test_check_mode_on_a_bare_node_changes_nothing_and_says_what_would(life: Life) -> None:
    ran, seen = life.applied["check"], life.seen["check"]
    assert (ran.rc, ran.node["outcome"]) == (0, "would-change"), ran.stderr
    assert [task for task in ran.node["changed_tasks"] if "Ensure exactly the locked driver" in task]
    assert (seen["packages"], seen["preferences"]) == ("", "")


def test_nouveau_bound_then_after_one_reboot_ours(life: Life) -> None:
    assert "nouveau" in life.seen["check"]["drivers"]
    assert_changed(life, "fresh", OLD, OPEN, before="check")
    assert "nouveau" not in life.seen["fresh"]["drivers"]


def test_second_apply_changes_nothing_and_does_not_reboot(life: Life) -> None:
    ran = life.applied["again"]
    assert (ran.rc, ran.node["outcome"], ran.node["changed"]) == (0, "unchanged", 0), ran.stdout
    assert life.seen["again"] == life.seen["fresh"]


@pytest.mark.parametrize(
    ("step", "version", "module", "before"),
    [
        ("upgrade", NEW, OPEN, "again"),
        ("downgrade", OLD, OPEN, "upgrade"),
        ("proprietary", OLD, PROPRIETARY, "downgrade"),
        ("open", OLD, OPEN, "proprietary"),
    ],
)
def test_change_takes_one_apply_and_one_reboot(life: Life, step: str, version: str, module: str, before: str) -> None:
    assert_changed(life, step, version, module, before)


@pytest.mark.parametrize("step", ["fresh", "upgrade", "downgrade", "proprietary", "open"])
def test_pins_and_unattended_upgrades_follow(life: Life, step: str) -> None:
    seen, version = life.seen[step], NEW if step == "upgrade" else OLD
    pinned = [line for line in seen["preferences"].splitlines() if line.startswith("Pin: version")]
    assert pinned[:2] == [f"Pin: version {version}-1", f"Pin: version {version}-*"]
    assert seen["candidate"] == f"{version}-1"
    assert '"nvidia-"' in seen["upgrades"]
    assert '"libcuda1"' in seen["upgrades"]


def assert_changed(life: Life, step: str, version: str, module: str, before: str) -> None:
    """The driver of this version runs, after one reboot, with nothing of another, and the node is verified."""
    ran, seen = life.applied[step], life.seen[step]
    assert (ran.rc, ran.node["outcome"]) == (0, "changed"), ran.stdout + ran.stderr
    assert [boot["state"] for boot in ran.node["boots"]] == ["rebooted"]
    verdicts = {check["id"]: check["verdict"] for check in ran.data["checks"][0]["checks"]}
    assert verdicts["driver-loaded"] == "pass"
    assert set(verdicts.values()) == {"pass", "skip"}
    assert seen["boot"] != life.seen[before]["boot"]
    assert seen["loaded"].startswith(f"{module}  {version} ")
    assert seen["smi"].split() == ["4", version]
    packages = [line.split() for line in seen["packages"].splitlines()]
    kernel = "nvidia-kernel-open-dkms" if module == OPEN else "nvidia-kernel-dkms"
    assert {name for name, _version in packages if name.endswith("-dkms")} == {kernel}
    assert {found for _name, found in packages} == {f"{version}-1"}
    assert seen["dpkg"] == ""
