"""gpustrap_reboot sees one reboot through: with a node below a fake root, and a connection that answers as asked."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from gpustrap.ansible_plugins.action import gpustrap_reboot as action
from gpustrap.ansible_plugins.module_utils.gpustrap_node import reboots
from gpustrap.ansible_plugins.module_utils.gpustrap_node.facts import collect_boot
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import NodeError

BEFORE = "11111111-1111-4111-8111-111111111111"
AFTER = "22222222-2222-4222-8222-222222222222"
VERSION = "595.91.07"


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


class Node:
    """A machine below a root; its reboot makes of it what the test says.

    Attributes:
        answers: What it says when asked for its boot id, one after the other; the last one from then on.
    """

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.answers: list[str | Exception] = [AFTER]
        self.boots: Callable[[], None] = lambda: None
        self.begun: list[str] = []
        self.transport = "ssh"
        self._shell = SimpleNamespace(tmpdir="/root/.ansible/tmp/x")
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def module(self, name: str, module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        assert (name, task_vars["inventory_hostname"]) == ("gpustrap_boot", "n1")
        host = self.tree.host()
        if module_args["action"] == "read":
            return {"facts": collect_boot(host), "noted": sorted(reboots.history(host))}
        if module_args["action"] == "forget":
            return {"changed": reboots.forget(host, module_args["stage"])}
        try:
            reboots.begin(host, module_args["stage"], module_args["target"], module_args["why"])
        except NodeError as error:
            return {"failed": True, "msg": str(error)}
        self.begun.append(module_args["target"])
        return {"changed": True}

    def shell(self, command: str, **_options: Any) -> dict[str, Any]:
        if "boot_id" not in command:
            return {"rc": 0, "stdout": "running"}
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if answer == AFTER:
            self.tree.text("proc/sys/kernel/random/boot_id", AFTER + "\n")
            self.boots()
        return {"rc": 0, "stdout": answer + "\n"}


@pytest.fixture
def installed(healthy: Any) -> Any:
    """Driver 595 is installed; 580 is loaded until the node boots."""
    healthy.loaded("580.95.05")
    return healthy


@pytest.fixture
def node(installed: Any) -> Node:
    made = Node(installed)
    made.boots = lambda: installed.loaded(VERSION)
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(action, "time", made)
    return made


@pytest.fixture
def step(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """``step(node, check=False, **arguments)`` runs the plugin as a task of the driver stage."""

    def run(node: Node, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
        given = {"stage": "driver", "version": VERSION, **arguments}
        task = SimpleNamespace(args=given, check_mode=check, async_val=0, action="gpustrap_reboot", diff=False)
        plugin = action.ActionModule(task, node, SimpleNamespace(check_mode=check), None, None, None)
        monkeypatch.setattr(plugin, "_execute_module", node.module)
        monkeypatch.setattr(plugin, "_low_level_execute_command", node.shell)
        return plugin.run(task_vars={"inventory_hostname": "n1"})

    return run


def told(result: dict[str, Any]) -> tuple[str, str]:
    return result["boot"]["state"], result["boot"]["code"]


def test_where_the_driver_runs_nothing_is_done(healthy: Any, step: Any) -> None:
    node = Node(healthy)
    result = step(node, allowed=True)
    assert (told(result), result["changed"], result["driver_loaded"]) == (("fits", "driver-runs"), False, True)
    assert node.begun == []


def test_without_leave_it_says_what_is_needed_and_ends_well(node: Node, step: Any, capsys: Any) -> None:
    result = step(node)
    assert "driver 580.95.05 is loaded" in " ".join(capsys.readouterr().err.split())  # plain Ansible's user sees it
    assert told(result) == ("reboot-needed", "driver-reboot")
    assert result["boot"]["remedy"] == "gpustrap apply --reboot n1"
    assert (result["changed"], result["driver_loaded"], result.get("failed")) == (False, False, None)
    assert node.begun == []


def test_with_leave_it_reboots_once_and_looks_whether_that_helped(node: Node, step: Any, clock: Clock) -> None:
    node.answers = [BEFORE, AnsibleConnectionFailure("refused"), "System is going down.", AFTER]
    result = step(node, allowed=True)
    assert told(result) == ("rebooted", "driver-reboot")
    assert (result["changed"], result["driver_loaded"]) == (True, True)
    assert result["boot"]["seconds"] == 4 * action.PAUSE
    assert len(node.begun) == 1
    assert node.resets >= 4  # each look over a connection of its own
    again = step(node, allowed=True)
    assert (told(again), again["changed"]) == (("fits", "driver-runs"), False)
    assert len(node.begun) == 1


def test_reboot_false_positive_words_that_are_no_boot_id_are_no_new_boot(node: Node, step: Any, clock: Clock) -> None:
    """A dying shell's words were taken for a new boot id, while the node was still going down."""
    node.answers = ["cat: write error", "", "Connection to n1 closed", AnsibleConnectionFailure("down"), AFTER]
    assert told(step(node, allowed=True)) == ("rebooted", "driver-reboot")
    assert clock.now == 5 * action.PAUSE


def test_reboot_false_positive_a_server_may_test_itself_for_long(node: Node, step: Any, clock: Clock) -> None:
    down = AnsibleConnectionFailure("ssh: connect to host n1 port 22: Connection timed out")
    node.answers = [*[down] * 300, AFTER]
    assert told(step(node, allowed=True)) == ("rebooted", "driver-reboot")
    assert clock.now > 1500


def test_a_node_that_does_not_come_back_is_unreachable_and_says_where_to_look(node: Node, step: Any) -> None:
    node.answers = [AnsibleConnectionFailure("Failed to connect\nssh: connect to host n1 port 22: No route to host")]
    result = step(node, allowed=True, minutes=10)
    assert (result["unreachable"], result["boot"]["state"]) == (True, "lost")
    assert result["msg"] == (
        "it did not come back within 10 min of its reboot\n"
        "its last answer: ssh: connect to host n1 port 22: No route to host"
    )
    assert "screen or BMC console of n1" in result["boot"]["remedy"]
    assert "gpustrap_reboot_minutes is 10" in result["boot"]["remedy"]


def test_a_node_that_does_not_go_down_is_not_waited_for(node: Node, step: Any, clock: Clock) -> None:
    node.answers = [BEFORE]
    result = step(node, allowed=True)
    assert (result["failed"], "unreachable" in result) == (True, False)
    assert "is still up" in result["msg"]
    assert "systemd-inhibit --list" in result["boot"]["remedy"]
    assert clock.now < 2 * action.DOWN


def test_a_reboot_that_did_not_help_is_not_tried_again(node: Node, step: Any) -> None:
    node.boots = lambda: None
    first = step(node, allowed=True)
    assert (told(first), first["failed"]) == (("useless", "reboot-loop"), True)
    second = step(node, allowed=True)
    assert (told(second), second["failed"]) == (("useless", "reboot-loop"), True)
    assert "already" in second["msg"]
    assert "journalctl -k -b" in second["boot"]["remedy"]
    assert len(node.begun) == 1


def test_a_driver_that_udev_is_still_loading_is_waited_for(node: Node, step: Any, clock: Clock) -> None:
    node.boots = lambda: None
    looks = iter(range(100))
    plain = node.module

    def late(*arguments: Any, **named: Any) -> dict[str, Any]:
        if next(looks) == 6:
            node.tree.loaded(VERSION)
        return plain(*arguments, **named)

    node.module = late  # type: ignore[method-assign]
    assert told(step(node, allowed=True)) == ("rebooted", "driver-reboot")
    assert 0 < clock.now < action.LOAD


def test_a_reboot_that_never_took_place_may_be_tried_again(node: Node, step: Any) -> None:
    """The controller was killed after the note was made, before the node went down."""
    reboots.remember(node.tree.host(), "driver", "driver 595.91.07 open on kernel x, libraries 595.91.07")
    assert told(step(node, allowed=True)) == ("rebooted", "driver-reboot")


def test_another_driver_is_another_matter(node: Node, step: Any) -> None:
    node.boots = lambda: None
    step(node, allowed=True)
    node.tree.module("6.12.41+deb13-amd64", "595.99.01")
    node.tree.library("595.99.01")
    node.tree.text("proc/sys/kernel/random/boot_id", BEFORE + "\n")
    node.boots = lambda: node.tree.loaded("595.99.01")
    assert told(step(node, allowed=True, version="595.99.01")) == ("rebooted", "driver-reboot")


def test_once_it_helped_the_note_is_gone(node: Node, step: Any) -> None:
    step(node, allowed=True)
    assert reboots.history(node.tree.host()) == {}


def test_a_reboot_by_hand_clears_the_note_too(node: Node, step: Any) -> None:
    node.boots = lambda: None
    step(node, allowed=True)
    assert "driver" in reboots.history(node.tree.host())
    node.tree.loaded(VERSION)
    assert told(step(node)) == ("fits", "driver-runs")
    assert reboots.history(node.tree.host()) == {}


def test_driver_lib_mismatch_on_disk_fails_instead_of_rebooting(node: Node, step: Any) -> None:
    node.tree.module("6.12.41+deb13-amd64", "580.95.05")
    result = step(node, allowed=True)
    assert (told(result), result["failed"]) == (("useless", "driver-lib-mismatch"), True)
    assert "libraries: 595.91.07" in result["msg"]
    assert node.begun == []


def test_kernel_moved_no_module_fails_instead_of_rebooting(node: Node, step: Any) -> None:
    node.tree.kernel("6.12.48+deb13-amd64", nouveau=True)
    assert told(step(node, allowed=True)) == ("useless", "kernel-moved-no-module")
    assert node.begun == []


def test_role_reboots_controller_never_over_a_local_connection(node: Node, step: Any) -> None:
    node.transport = "local"
    result = step(node, allowed=True)
    assert told(result) == ("reboot-needed", "driver-reboot")
    assert result["boot"]["remedy"] == "gpustrap apply --local --reboot"
    assert node.begun == []


def test_role_reboots_controller_never_by_ssh_to_itself(node: Node, step: Any, monkeypatch: Any, tmp_path: Any) -> None:
    (tmp_path / "boot_id").write_text(BEFORE + "\n")
    monkeypatch.setattr(action, "BOOT_ID", tmp_path / "boot_id")
    assert told(step(node, allowed=True)) == ("reboot-needed", "driver-reboot")
    assert node.begun == []


def test_check_mode_says_what_would_follow_and_fails_on_nothing(node: Node, step: Any) -> None:
    result = step(node, check=True, allowed=True)
    assert result["msg"] == "would follow: driver 580.95.05 is loaded, 595.91.07 is installed"
    other = step(node, check=True, allowed=True, version="999.1")
    assert (other.get("failed"), other["msg"][:13]) == (None, "would follow:")
    assert node.begun == []


def test_secureboot_mok_waits_for_a_person_and_reboots_nothing(node: Node, step: Any) -> None:
    node.tree.module("6.12.41+deb13-amd64", VERSION, signed=True)
    node.tree.secure_boot(requested=True)
    result = step(node, allowed=True, mok=True, staged=True, missed=True)
    assert (told(result), result.get("failed")) == (("person", "secureboot-mok"), None)
    assert result["boot"]["staged"] is True
    assert result["boot"]["reason"].endswith("went by with nobody there")
    assert "console of n1" in result["boot"]["remedy"]
    assert node.begun == []


def test_secureboot_mok_enrolled_by_the_person_is_seen(node: Node, step: Any) -> None:
    node.tree.module("6.12.41+deb13-amd64", VERSION, signed=True)
    node.tree.secure_boot(enrolled=True)
    node.tree.loaded(VERSION)
    assert told(step(node, mok=True)) == ("fits", "driver-runs")


def test_missing_headers_bring_another_kernel_first(tree: Any, step: Any) -> None:
    old, new = "6.12.41+deb13-amd64", "6.12.48+deb13-amd64"
    tree.kernel(old, headers=False)
    tree.kernel(new)
    node = Node(tree)
    node.boots = lambda: tree.running(new)
    result = step(node, stage="kernel", allowed=True)
    assert told(result) == ("rebooted", "kernel-reboot")
    assert node.begun == [f"kernel {new}"]
