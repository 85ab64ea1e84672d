"""What verbs say around their results: the next command, and what was written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from gpustrap.cli.app import app
from gpustrap.commands import lab
from gpustrap.commands.enroll import Enrolled
from gpustrap.commands.plan import Planned
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.lab.status import Status
from gpustrap.model.lock import Lock
from gpustrap.model.node import Access, Endpoint, Escalation, Node
from gpustrap.model.request import Request
from gpustrap.model.run import NodeRun, Outcome, RunSummary
from gpustrap.ssh.trust import HostKey

REFUSED = Problem("no-docker", "node n1", "cannot have docker", ExitCode.REFUSED)


@pytest.mark.parametrize(
    ("changes", "problems", "written", "said", "not_said"),
    [
        (("+ n1: new",), (), True, ("wrote gpustrap.lock.yml", "Next: gpustrap apply"), ("up to date",)),
        ((), (), False, ("Nothing changes.", "gpustrap.lock.yml is up to date"), ("Next:", "wrote")),
        ((), (REFUSED,), False, ("cannot have docker",), ("Nothing changes.", "up to date", "gpustrap apply")),
        (("+ n2: new",), (REFUSED,), True, ("wrote", "Next: gpustrap apply"), ("Nothing changes.",)),
    ],
)
def test_plan_says_what_it_did(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    changes: tuple[str, ...],
    problems: tuple[Problem, ...],
    written: bool,
    said: tuple[str, ...],
    not_said: tuple[str, ...],
) -> None:
    planned = Planned({}, changes, problems, Lock(tool="t", catalog="c", nodes={}), written)
    monkeypatch.setattr("gpustrap.commands.plan.plan", lambda *_, **__: planned)
    shown = CliRunner().invoke(app, ["plan"]).output + "".join(capfd.readouterr())
    assert [words for words in said if words not in shown] == []
    assert [words for words in not_said if words in shown] == []


def test_apply_in_check_mode_ends_with_the_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    node = NodeRun(node="n1", outcome=Outcome.WOULD_CHANGE, changed_tasks=("docker : Install",))
    summary = RunSummary(id="r", started="2026-01-01T00:00:00Z", seconds=1, check=True, nodes=(node,))
    applied = SimpleNamespace(
        summary=summary, problems=(), directory=tmp_path / "r", password="", exit_code=ExitCode.OK
    )
    monkeypatch.setattr("gpustrap.commands.apply.apply", lambda *_, **__: applied)
    monkeypatch.chdir(tmp_path)
    words = ["apply", "n1", "--check", "--diff", "--limit", "rack 1"]
    shown = CliRunner().invoke(app, words).output + "".join(capfd.readouterr())
    assert f"Differences: {tmp_path}/r/ansible.log\nNext: gpustrap apply n1 --limit 'rack 1'\n" in shown


def test_enroll_says_that_sudo_will_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def enrolled(name: str, escalation: Escalation) -> Enrolled:
        key = HostKey("ssh-ed25519", "SHA256:x", "new")
        return Enrolled(name, f"u@{name}", key, "password", Access(escalation=escalation), "3.13", (), ())

    ways = {"n1": Escalation.PASSWORD, "n2": Escalation.PASSWORD, "n3": Escalation.NOPASSWD}
    results = {name: enrolled(name, way) for name, way in ways.items()}
    monkeypatch.setattr("gpustrap.site.inventory.load_nodes", lambda *_: ())
    monkeypatch.setattr("gpustrap.commands.enroll.enroll_nodes", lambda *_, **__: results)
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["enroll"]).output + "".join(capfd.readouterr())
    why = "sudo on n1, n2 asks for a password"
    assert f"Next: gpustrap inspect -K ({why}; or once: gpustrap enroll --passwordless-sudo -K)\n" in shown
    results.pop("n1"), results.pop("n2")
    assert "Next:" not in CliRunner().invoke(app, ["enroll"]).output + "".join(capfd.readouterr())


def test_an_archive_in_the_way_is_seen_before_the_node_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.tar.gz").write_text("mine")
    node = Node(Endpoint("n1", "192.0.2.1"), (), Request())
    monkeypatch.setattr("gpustrap.site.inventory.load_nodes", lambda *_: (node,))
    monkeypatch.setattr("gpustrap.commands.report.make_bundle", lambda *_, **__: pytest.fail("asked"))
    for output in ("there.tar.gz", "no-such-directory/a.tar.gz"):
        done = CliRunner().invoke(app, ["report", "--bundle", "n1", "-o", str(tmp_path / output)])
        assert isinstance(done.exception, GpustrapError)
        assert [p.code for p in done.exception.problems] == ["bundle-not-written"]


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lab, demo, with node1."""
    monkeypatch.setattr(lab, "all_statuses", lambda: (Status("demo", "node1", "debian13", "10.0.0.2", "running"),))
    monkeypatch.setattr(lab.state, "labs", lambda: ())
    gone = {"demo": ("node1",)}
    monkeypatch.setattr(
        lab, "Lab", lambda name: SimpleNamespace(sites=lambda: (), down=lambda _progress: gone.get(name, ()))
    )


@pytest.mark.usefixtures("labs")
def test_another_lab_is_named() -> None:
    with pytest.raises(GpustrapError) as caught:
        lab.shell("node1")
    (problem,) = caught.value.problems
    assert "runs in lab demo" in problem.message
    assert (problem.remedy, problem.exit_code) == ("gpustrap lab shell node1 --lab demo", ExitCode.REFUSED)


@pytest.mark.usefixtures("labs")
def test_a_lab_that_is_not_there_is_no_error_and_the_others_are_named() -> None:
    assert lab.down("demo") == ("node1",)
    done = CliRunner().invoke(app, ["lab", "down", "--lab", "demoo"])
    assert done.exit_code == 0
    assert "Labs here: demo" in done.stderr


@pytest.mark.parametrize("verb", ["init", "enroll", "inspect", "plan", "apply", "verify", "drift", "report", "lab up"])
def test_examples_of_the_help_stand_in_lines_of_their_own(verb: str) -> None:
    shown = CliRunner().invoke(app, [*verb.split(), "--help"]).output
    lines = [line.strip() for line in shown.partition("Examples:")[2].splitlines() if line.strip()]
    assert f"gpustrap {verb}" in " ".join(lines)
    assert [line for line in lines if line.count("gpustrap ") > 1] == []
