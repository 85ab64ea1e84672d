"""remove: what is refused before any node is asked, what a node refuses, whom it asks, and what it gives to Ansible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console, RenderableType

from gpustrap.cli import app as program
from gpustrap.cli import remove as cli
from gpustrap.cli.output import Format
from gpustrap.commands import remove as command
from gpustrap.content import content_root
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Endpoint, Node, Secrets
from gpustrap.model.removal import Part, Removal
from gpustrap.model.request import Request
from gpustrap.model.run import BootStep, NodeRun, Outcome
from gpustrap.model.site import Site
from gpustrap.report import remove_text
from gpustrap.resolve.digests import request_digest

NONE = Request.model_validate({"gpu": "none"})
LIST = {
    "packages": ["nvidia-kernel-open-dkms"],
    "files": ["/etc/modprobe.d/gpustrap-nvidia.conf"],
    "kept": ["x: why"],
    "released": ["linux-generic"],
}


def node(name: str = "n1", request: Request = NONE) -> Node:
    return Node(Endpoint(name, name), (), request)


def entry(*roles: str, request: Request = NONE) -> NodeLock:
    wired: dict[str, dict[str, Any]] = {role: {} for role in roles}
    return NodeLock(request_digest=request_digest(request), system_digest="b", os="debian 12", choices=(), roles=wired)


def refused(code: str, message: str) -> GpustrapError:
    return GpustrapError(
        Problem(code, "node n1", "the node could not answer (removal)", ExitCode.COULD_NOT_CHECK, message, "inspect")
    )


class World:
    """Nodes, a lock, and what each node says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes, self.answers = [node()], {"n1": LIST}
        self.lock: Lock | None = Lock(tool="t", catalog="c", nodes={"n1": entry("docker")})
        self.asked: dict[str, dict[str, Any]] = {}
        monkeypatch.setattr(command, "load_nodes", lambda *_: tuple(self.nodes))
        monkeypatch.setattr(command, "read_lock", lambda _site: self.lock)
        monkeypatch.setattr(command, "ask_verb", self.ask)

    def ask(self, _site: Site, nodes: Sequence[Node], verb: str, arguments: Any, **_more: Any) -> dict[str, Any]:
        assert verb == "removal"
        self.asked = {n.name: arguments(n) for n in nodes}
        return {n.name: self.answers[n.name] for n in nodes}

    def foresee(self, part: Part = Part.DRIVER) -> tuple[command.Foreseen, ...]:
        return command.foresee(Site(Path("/nowhere")), part, patterns=["n1"], secrets=Secrets())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_node_says_what_would_go(world: World) -> None:
    (found,) = world.foresee()
    assert (list(found.removal.packages), found.problems) == (LIST["packages"], ())
    assert world.asked == {"n1": {"part": "driver", "wanted": ["docker"], "gpu_users": "refuse"}}


@pytest.mark.parametrize(
    ("part", "role", "switch"),
    [
        (Part.DRIVER, "nvidia_driver", "gpustrap_gpu: none"),
        (Part.DRIVER, "nvidia_fabric_manager", "gpustrap_gpu: none"),
        (Part.CUDA, "cuda_toolkit", "gpustrap_cuda_version: none"),
    ],
)
def test_what_the_lock_still_has_is_refused_with_the_variable_to_set(
    world: World, part: Part, role: str, switch: str
) -> None:
    world.lock = Lock(tool="t", catalog="c", nodes={"n1": entry("docker", role)})
    (found,) = world.foresee(part)
    (said,) = found.problems
    assert (said.code, said.exit_code) == ("still-wanted", ExitCode.REFUSED)
    assert said.remedy == f"set {switch} for n1, then gpustrap plan n1"
    assert world.asked == {}


def test_a_variable_that_is_set_and_not_planned_is_refused(world: World) -> None:
    world.lock = Lock(tool="t", catalog="c", nodes={"n1": entry("nvidia_driver", request=Request())})
    assert [p.code for p in world.foresee()[0].problems] == ["lock-stale"]
    world.lock = Lock(tool="t", catalog="c", nodes={})
    assert [p.code for p in world.foresee()[0].problems] == ["lock-stale"]
    world.lock = None
    with pytest.raises(GpustrapError) as caught:
        world.foresee()
    assert caught.value.problems[0].code == "no-lock"


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("no-note-from-before", "remove it by apt"),
        ("gpus-in-use", "gpustrap_gpu_users: allow for n1 and run gpustrap plan n1"),
        ("others-need-it", "gpustrap remove driver n1"),
    ],
)
def test_what_a_node_refuses_is_a_refusal_with_a_next_step(world: World, code: str, remedy: str) -> None:
    world.answers = {"n1": refused(code, "its own words")}
    (said,) = world.foresee()[0].problems
    assert (said.code, said.message, said.exit_code) == (code, "its own words", ExitCode.REFUSED)
    assert remedy in said.remedy


def test_an_answer_of_another_shape_is_not_taken(world: World) -> None:
    world.answers = {"n1": {"packages": "all of them"}}
    (said,) = world.foresee()[0].problems
    assert (said.code, said.exit_code) == ("probe-failed", ExitCode.COULD_NOT_CHECK)


def test_without_a_terminal_nothing_is_removed_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.sys.stdin, "isatty", lambda: False, raising=False)
    for form in Format:
        with pytest.raises(GpustrapError) as caught:
            cli._confirm(form)
        assert caught.value.problems[0].code == "not-confirmed"


def test_a_removal_names_its_nodes() -> None:
    with pytest.raises(GpustrapError) as caught:
        cli.remove(part=Part.CUDA)
    assert (caught.value.problems[0].code, caught.value.exit_code) == ("no-node-named", ExitCode.USAGE)


def test_a_removed_driver_that_is_loaded_ends_with_21() -> None:
    boot = BootStep(stage="removal", state="reboot-needed", code="removed-driver-loaded", reason="it is loaded")
    run = NodeRun(node="n1", outcome=Outcome.CHANGED, boots=(boot,))
    assert command.Removed((run,), (), Path()).exit_code is ExitCode.REBOOT_NEEDED
    assert "it is loaded" in shown(remove_text.ended([run]))


def test_the_list_is_shown_whole() -> None:
    text = shown(remove_text.foreseen("n1", Removal.model_validate(LIST)))
    assert "1 package and 1 file would go" in text
    assert all(word in text for words in LIST.values() for word in words)
    assert "nothing of gpustrap's" in shown(remove_text.foreseen("n1", Removal()))


def test_the_playbook_removes_then_looks_at_the_reboot_and_is_quiet() -> None:
    (play,) = yaml.safe_load((content_root() / "playbooks" / "remove.yml").read_text())
    first, second = play["tasks"]
    assert first["gpustrap_removal"]["wanted"] == "{{ gpustrap_roles }}"
    assert second["gpustrap_reboot"]["allowed"] == "{{ gpustrap_reboot | default(false) }}"
    assert second["when"] == "gpustrap_remove == 'driver'"
    assert (play["any_errors_fatal"], play["environment"]) == (False, {"NEEDRESTART_MODE": "l"})


def shown(what: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(what)
    return capture.get()
