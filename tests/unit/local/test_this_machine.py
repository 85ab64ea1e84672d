"""--local: which node this machine is, what Ansible is told of it, when it reboots itself, and what is read then."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from gpustrap.cli import local as cli
from gpustrap.cli.app import app
from gpustrap.cli.local import choose_local, finish_local
from gpustrap.commands import local_reboot
from gpustrap.commands.apply import Applied
from gpustrap.commands.local_reboot import Again, reboot_here, wants_reboot
from gpustrap.converge.session import Target, _usual_umask, connection_variables
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Access, Endpoint, Escalation, Node, Secrets
from gpustrap.model.request import Request
from gpustrap.model.run import BootStep, NodeRun, Outcome, RunSummary
from gpustrap.model.site import Site
from gpustrap.report import next_step, resume_text
from gpustrap.site import owner
from gpustrap.site.create import create_site
from gpustrap.site.inventory import this_machine
from gpustrap.verify import protocol

STEP = BootStep(stage="driver", state="reboot-needed", code="driver-reboot", reason="it waits", target="driver 595")
WAITS = NodeRun(node="localhost", outcome=Outcome.CHANGED, boots=(STEP,))
SECRETS = Secrets(become_password="x")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run remembers for its next commands is no other test's."""
    monkeypatch.setattr(next_step, "_here", [])


def site_with(root: Path, hosts: str) -> Site:
    create_site(root)
    (root / "inventory/hosts.yml").write_text(f"all: {{hosts: {hosts}}}\n")
    return Site(root)


def applied(*nodes: NodeRun, code: ExitCode = ExitCode.REBOOT_NEEDED) -> Applied:
    summary = RunSummary(id="r", started="2026-01-01T00:00:00Z", seconds=1, nodes=nodes)
    return Applied(summary, (), Path("/site/.gpustrap/runs/r"), code)


@pytest.mark.parametrize(
    ("hosts", "name"),
    [
        ("{}", "localhost"),
        ("{box: {ansible_connection: local}}", "box"),
        ("{n1: {ansible_host: 192.0.2.1}, box: {ansible_connection: ansible.builtin.local}}", "box"),
    ],
)
def test_which_node_this_machine_is(tmp_path: Path, hosts: str, name: str) -> None:
    assert this_machine(site_with(tmp_path, hosts)) == name


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("{n1: {}, n2: {}}", "none of the 2 nodes has ansible_connection: local"),
        ("{a: {ansible_connection: local}, b: {ansible_connection: local}}", "2 nodes have ansible_connection: local"),
    ],
)
def test_where_it_is_not_plain_no_machine_is_changed_by_mistake(tmp_path: Path, hosts: str, words: str) -> None:
    with pytest.raises(GpustrapError) as caught:
        this_machine(site_with(tmp_path, hosts))
    (problem,) = caught.value.problems
    assert (problem.code, problem.exit_code) == ("no-local-node", ExitCode.USAGE)
    assert words in problem.message


def test_local_and_nodes_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(GpustrapError) as caught:
        choose_local(site_with(tmp_path, "{}"), Secrets(), ["n1"], "rack1")
    assert caught.value.problems[0].evidence == "n1 --limit rack1"


def test_the_sudo_password_is_asked_for_where_sudo_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_with(tmp_path, "{}")
    monkeypatch.setattr("gpustrap.ssh.local.sudo_asks", lambda _name: True)
    monkeypatch.setattr("getpass.getpass", lambda prompt: prompt)
    assert choose_local(site, Secrets(), None, None) == (["localhost"], Secrets(become_password="sudo password: "))
    assert choose_local(site, SECRETS, None, None)[1] is SECRETS
    monkeypatch.setattr("gpustrap.ssh.local.sudo_asks", lambda _name: False)
    assert choose_local(site, Secrets(), None, None)[1].become_password is None


def test_enroll_leaves_this_machine_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, asked = site_with(tmp_path, "{n1: {}, box: {ansible_connection: local}}"), []
    monkeypatch.setattr("gpustrap.commands.enroll.enroll_nodes", lambda _s, nodes, **_: asked.extend(nodes) or {})
    done = CliRunner().invoke(app, ["enroll", "--site", str(site.root)])
    assert (done.exit_code, [n.name for n in asked]) == (0, ["n1"])


def test_next_commands_are_about_this_machine_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustrap.ssh.local.sudo_asks", lambda _name: False)
    assert next_step.next_step("gpustrap apply localhost") == "gpustrap apply localhost"
    choose_local(site_with(tmp_path, "{}"), Secrets(), None, None)
    said = "read a.log, then gpustrap plan --upgrade localhost; gpustrap apply localhost, or gpustrap apply --local"
    assert next_step.next_step(said) == (
        "read a.log, then gpustrap plan --local --upgrade; gpustrap apply --local, or gpustrap apply --local"
    )


def test_a_checkout_is_not_made_a_site(tmp_path: Path) -> None:
    (tmp_path / "inventory/example").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "gpustrap"\n')
    with pytest.raises(GpustrapError, match="checkout"):
        create_site(tmp_path)


def test_ansible_is_on_this_machine_without_ssh() -> None:
    target = Target(Endpoint("box", "box", user="ubuntu", local=True), Access(Escalation.PASSWORD))
    variables = connection_variables(target, Path("/known_hosts"), Path("/key"), ())
    assert variables == {
        "ansible_connection": "ansible.builtin.local",
        "ansible_local_become_success_timeout": 120,
        "ansible_become": True,
        "ansible_become_method": "ansible.builtin.sudo",
        "ansible_become_exe": "sudo",
        "ansible_python_interpreter": "/usr/bin/python3",
    }


def test_what_roles_make_here_is_not_for_root_alone(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with _usual_umask():
            subprocess.run(["touch", str(tmp_path / "made")], check=True)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o644


def test_nobody_logs_in_to_this_machine() -> None:
    check = protocol.no_login_check()
    assert (check.id, check.verdict, bool(check.reason)) == ("ssh-login", "skip", True)


def test_only_a_run_of_this_machine_alone_reboots_it() -> None:
    """role-reboots-controller: never with other nodes in the run."""
    other = NodeRun(node="n1", outcome=Outcome.CHANGED)
    assert wants_reboot(applied(WAITS)) == STEP
    assert wants_reboot(applied(WAITS, other)) is None
    assert wants_reboot(applied(other)) is None
    person = STEP.model_copy(update={"state": "person"})
    assert wants_reboot(applied(WAITS.model_copy(update={"boots": (person,)}))) is None


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Finish an apply: ``world(applied, allowed=…)`` gives the exit code, and what was done is in it."""
    site, done = site_with(tmp_path, "{}"), SimpleNamespace(rebooted=[], notes=[], asked=[], error=None, agrees=False)

    def begin(_site: Site, _node: Node, step: BootStep, again: Again, _secrets: Secrets) -> None:
        if done.error:
            raise GpustrapError(done.error)
        done.rebooted.append((step, again))

    monkeypatch.setattr(local_reboot, "reboot_here", begin)
    monkeypatch.setattr(local_reboot, "leave_note", lambda _s, _n, ended, _x: done.notes.append(ended))
    monkeypatch.setattr(local_reboot, "NOTE", tmp_path / "note")
    monkeypatch.setattr(cli, "_agreed", lambda why: done.asked.append(why) or done.agrees)

    def finish(ended: Applied, *, reboots: int = 0, allowed: bool = False, may_ask: bool = False) -> ExitCode:
        again = Again(reboots=reboots)
        return finish_local(site, "localhost", ended, SECRETS, again, allowed=allowed, may_ask=may_ask)

    done.finish, done.note, done.site = finish, tmp_path / "note", site
    return done


def test_without_leave_nothing_is_rebooted(world: Any) -> None:
    assert world.finish(applied(WAITS)) is ExitCode.REBOOT_NEEDED
    assert world.finish(applied(WAITS), may_ask=True) is ExitCode.REBOOT_NEEDED
    assert (world.rebooted, world.asked, world.notes) == ([], ["it waits"], [])


def test_with_leave_it_is(world: Any) -> None:
    assert world.finish(applied(WAITS), allowed=True) is ExitCode.REBOOT_NEEDED
    world.agrees = True
    world.finish(applied(WAITS), may_ask=True)
    (world.site.inventory / "group_vars/all.yml").write_text("gpustrap_reboot: true\n")
    world.finish(applied(WAITS))
    assert len(world.rebooted) == 3


def test_why_it_was_not_rebooted_is_said(world: Any, capfd: pytest.CaptureFixture[str]) -> None:
    world.error = Problem("reboot-loop", "node localhost", "was not rebooted again", ExitCode.APPLY_FAILED)
    assert world.finish(applied(WAITS), allowed=True) is ExitCode.APPLY_FAILED
    assert "was not rebooted again" in capfd.readouterr().err


def test_only_what_went_on_after_a_reboot_leaves_a_note_and_any_other_takes_it_away(world: Any) -> None:
    well = applied(NodeRun(node="localhost", outcome=Outcome.UNCHANGED), code=ExitCode.OK)
    world.finish(well)
    assert world.notes == []
    world.finish(well, reboots=1)
    world.note.touch()
    world.finish(well)
    assert world.notes == [well, None]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the node program was asked; answers with the error that stands first in the list, if one does."""
    said: list[Any] = []

    def answer(_site: Site, nodes: Any, verb: str, arguments: Any, **_rest: Any) -> dict[str, Any]:
        errors = [s for s in said if isinstance(s, GpustrapError)]
        said.append((verb, arguments(nodes[0])))
        return {nodes[0].name: errors[0] if errors else {}}

    monkeypatch.setattr(local_reboot, "ask_verb", answer)
    return said


NODE = Node(Endpoint("localhost", "localhost", local=True), (), Request())


def test_the_same_interpreter_goes_on_with_the_same_site_and_options(
    tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment of the user's is no trouble; neither is a vault."""
    monkeypatch.setenv("GPUSTRAP_VAULT_PASSWORD_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("GPUSTRAP_BECOME_PASSWORD", "hunter2")
    monkeypatch.chdir(tmp_path)
    reboot_here(Site(tmp_path), NODE, STEP, Again(("docker",), verify=False, reboots=1), SECRETS)
    ((verb, args),) = asked
    assert verb == "reboot-here"
    assert args["command"] == [
        *(sys.executable, "-P", "-m", "gpustrap", "apply", "--local", "--site", str(tmp_path.resolve())),
        *("--reboot", "--resumed", "2", "--tags", "docker", "--no-verify"),
    ]
    assert {str(tmp_path.resolve()), sys.prefix, str(tmp_path / "key")} <= set(args["needs"])
    assert args["environment"]["GPUSTRAP_VAULT_PASSWORD_FILE"] == str(tmp_path / "key")
    assert (args["stage"], args["target"]) == ("driver", "driver 595")
    assert "hunter2" not in str(args)


def test_two_reboots_of_one_apply_are_enough(tmp_path: Path, asked: list[Any]) -> None:
    with pytest.raises(GpustrapError) as caught:
        reboot_here(Site(tmp_path), NODE, STEP, Again(reboots=2), SECRETS)
    assert (caught.value.problems[0].code, asked) == ("reboot-loop", [])


@pytest.mark.parametrize(
    ("code", "exit_code"), [("resume-impossible", ExitCode.REBOOT_NEEDED), ("reboot-loop", ExitCode.APPLY_FAILED)]
)
def test_what_the_machine_refuses_is_said_in_words(
    tmp_path: Path, asked: list[Any], code: str, exit_code: ExitCode
) -> None:
    refused = Problem(code, "node localhost", "the node could not answer", ExitCode.COULD_NOT_CHECK, "its own words")
    asked.append(GpustrapError(refused))
    with pytest.raises(GpustrapError) as caught:
        reboot_here(Site(tmp_path), NODE, STEP, Again(), SECRETS)
    (problem,) = caught.value.problems
    assert (problem.code, problem.exit_code, problem.evidence) == (code, exit_code, "its own words")
    assert "gpustrap apply --local" in problem.remedy


def test_notes_fit_a_terminal_and_say_what_to_do() -> None:
    now = datetime(2026, 12, 1, 3, 7, tzinfo=UTC)
    before = resume_text.under_way(now, "driver 595.91.07 is installed and not loaded", "/var/log/gpustrap/resume.log")
    assert "03:07 UTC on 1 December 2026" in before
    assert "gpustrap apply --local" in before
    well = resume_text.ended(now, ExitCode.OK, Path("/s/runs/r"), "/log")
    bad = resume_text.ended(now, ExitCode.VERIFY_FAILED, Path("/s/runs/r"), "/log")
    assert "as locked (exit code 0)" in well.replace("\n  ", " ")
    assert "Next: gpustrap apply --local" not in well
    assert "a check failed (exit code 12)" in bad.replace("\n  ", " ")
    assert bad.endswith("Next: gpustrap apply --local\n")
    assert all(len(line) <= 80 for note in (before, well, bad) for line in note.splitlines())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_site_stays_its_users_after_a_run_as_root(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (site.runs / "r").mkdir(parents=True)
    (site.runs / "r" / "summary.json").touch()
    site.lock.touch()
    (tmp_path / "elsewhere").touch()
    (site.state / "link").symlink_to(tmp_path / "elsewhere")
    os.chown(tmp_path, 12345, 12345)
    owner.give_back(site)
    made = [site.lock, site.state, *site.state.rglob("*")]
    assert {p.lstat().st_uid for p in made} == {12345}
    assert (tmp_path / "elsewhere").stat().st_uid == 0
