"""apply is cut off in the middle of the driver's transaction of apt, from either side: the next one finishes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpustrap.lab.manager import Lab, NodeSpec

pytestmark = pytest.mark.slow

OLD, NEW = "580.178.04", "595.71.05"
ONLY_THE_DRIVER = {
    "gpustrap_conda": False,
    "gpustrap_environments": [],
    "gpustrap_docker": False,
    "gpustrap_cuda_version": "none",
    "gpustrap_reboot_minutes": 10,
}
LIMIT = 600  # seconds until apt is in the middle; a small machine with other work is slow
UNPACKED = "dpkg-query -W -f '${db:Status-Status}\\n' '*nvidia*' 2>/dev/null | grep -qx unpacked"
VERSIONS = (
    "dpkg-query -W -f '${db:Status-Status} ${Version}\\n' '*nvidia*' libcuda1 | sed -n 's/^installed //p' | sort -u"
)
STATE = f"dpkg --audit; {VERSIONS}; sed -n '1s/.*x86_64  *\\([0-9.]*\\) .*/\\1/p' /proc/driver/nvidia/version"


@dataclass
class Story:
    """What each call said, and what was on the node."""

    calls: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(lab: Lab, node_names: Iterator[str], operate: Callable[..., Any]) -> Iterator[Story]:
    """A fresh node whose controller is killed; then, when all is well, an upgrade in which the node loses power."""
    name = next(node_names)
    told = Story()
    spec = NodeSpec(name, "debian12", gpus="1x-rtx3090")
    operator = operate(lab.up([spec])[0], lab.standins())

    def in_the_middle(*words: str) -> Any:
        process = operator.start("apply", *words)
        deadline = time.monotonic() + LIMIT
        while operator.node.exec(UNPACKED).returncode:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "apt never came to the driver"
            time.sleep(0.2)
        return process

    operator.wish(**ONLY_THE_DRIVER, gpustrap_driver_branch="580")
    process = in_the_middle("--reboot")
    process.kill()
    process.communicate()
    told.calls["drift after the kill"] = operator.call("drift")
    told.calls["after the kill"] = operator.call("apply", "--reboot")
    told.seen["after the kill"] = operator.on_node(STATE)
    told.calls["again"] = operator.call("apply", "--reboot")

    operator.wish(**ONLY_THE_DRIVER, gpustrap_driver_branch="595")
    process = in_the_middle("--reboot")
    lab.engine.run("kill", operator.node.container)
    told.calls["power lost"] = operator.end(process)
    lab.up([spec])
    told.seen["power lost"] = operator.on_node("dpkg --audit | head -1")
    told.calls["drift after the power was lost"] = operator.call("drift")
    told.calls["after the power was lost"] = operator.call("apply", "--reboot")
    told.seen["after the power was lost"] = operator.on_node(STATE)
    told.calls["in sync"] = operator.call("drift")
    yield told
    lab.remove(name)


@pytest.mark.parametrize("step", ["drift after the kill", "drift after the power was lost"])
def test_the_run_that_was_cut_off_is_noted_as_open(story: Story, step: str) -> None:
    ran = story.calls[step]
    assert ran.rc == 13, ran.stdout
    assert [problem["code"] for problem in ran.node["problems"]] == ["run-incomplete"]


@pytest.mark.parametrize(("step", "version"), [("after the kill", OLD), ("after the power was lost", NEW)])
def test_the_next_apply_finishes(story: Story, step: str, version: str) -> None:
    ran = story.calls[step]
    assert (ran.rc, ran.node["outcome"]) == (0, "changed"), ran.stdout + ran.stderr
    verdicts = {check["id"]: check["verdict"] for check in ran.data["checks"][0]["checks"]}
    assert verdicts["driver-loaded"] == "pass"
    assert set(verdicts.values()) == {"pass", "skip"}
    assert story.seen[step].split() == [f"{version}-1", version]


def test_the_apply_after_that_changes_nothing(story: Story) -> None:
    ran = story.calls["again"]
    assert (ran.rc, ran.node["changed"], ran.node["boots"]) == (0, 0, []), ran.stdout


def test_a_node_that_loses_power_is_told_as_unreachable(story: Story) -> None:
    ran = story.calls["power lost"]
    assert (ran.rc, ran.node["outcome"]) == (4, "unreachable"), ran.stdout
    assert story.seen["power lost"], "dpkg was not in the middle of it"
    assert story.calls["in sync"].rc == 0, story.calls["in sync"].stdout
