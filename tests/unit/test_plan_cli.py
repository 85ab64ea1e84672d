"""The options of plan: what they show, what they refuse, and that they write nothing they should not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gpustrap.cli.app import app
from gpustrap.cli.output import show_problems
from gpustrap.commands import plan as command
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock
from gpustrap.model.node import Endpoint, Node
from gpustrap.model.request import Request
from gpustrap.resolve.plan import COMPONENTS

FACTS = yaml.safe_load((Path(__file__).parent.parent / "cases" / "plan" / "facts" / "debian13.yml").read_text())
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """A site with node n1, whose facts are recorded; and what the program says in it."""
    node = Node(Endpoint("n1", "n1"), (), Request())
    monkeypatch.setattr(command, "load_nodes", lambda *_: (node,))
    monkeypatch.setattr(command, "read_facts", lambda *_a, **_k: {"n1": Facts.model_validate(FACTS)})
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["plan", *words])
        if isinstance(done.exception, GpustrapError):
            show_problems(done.exception.problems)
            return int(done.exception.exit_code), "".join(capfd.readouterr())
        return done.exit_code, done.output + "".join(capfd.readouterr())

    return invoke


def test_explain_tells_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    code, said = run("n1", "--explain")
    assert code == 0
    assert "Rests on catalog: distros, debian 13 (verified)." in said
    assert "Next:" not in said
    assert list(tmp_path.iterdir()) == []
    assert run("n1")[0] == 0
    assert (tmp_path / "gpustrap.lock.yml").exists()


def test_explain_tells_a_refusal_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(Endpoint("n1", "n1"), (), Request(conda_distribution="miniconda"))
    monkeypatch.setattr(command, "load_nodes", lambda *_: (node,))
    code, said = run("--explain")
    assert (code, said.count("terms-not-accepted")) == (3, 1)


def test_recorded_facts_need_no_site_and_write_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "box.json").write_text(json.dumps(FACTS))
    code, said = run("--from-facts", "box.json")
    assert (code, said.splitlines()[0]) == (0, "box")
    assert "Nothing changes" not in said
    code, said = run("--from-facts", "box.json", "--explain", "box")
    assert (code, said.splitlines()[0]) == (0, "box")
    code, said = run("--from-facts", "box.json", "--format", "json", "--set", "gpustrap_docker=false")
    assert (code, sorted(json.loads(said)["nodes"]["box"]["roles"])) == (0, ["conda", "ubuntu_server"])
    assert [p.name for p in tmp_path.iterdir()] == ["box.json"]


def test_a_site_that_is_named_must_be_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "box.json").write_text(json.dumps(FACTS))
    code, said = run("--from-facts", "box.json", "--site", "nowhere")
    assert (code, "no-site" in said) == (2, True)


@pytest.mark.parametrize(
    ("words", "moving"),
    [
        ((), ()),
        (("--upgrade",), COMPONENTS),
        (("--upgrade", "--only", "docker"), ("docker",)),
        (("--upgrade", "--only", "driver", "--only", "cuda", "--only", "driver"), ("driver", "cuda")),
    ],
)
def test_only_what_is_named_moves(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], moving: tuple[str, ...]
) -> None:
    seen: list[Any] = []

    def plan(*_site: Any, upgrade: Any, **_more: Any) -> command.Planned:
        seen.append(upgrade)
        return command.Planned({}, (), (), Lock(tool="t", catalog="c", nodes={}))

    monkeypatch.setattr(command, "plan", plan)
    assert run(*words)[0] == 0
    assert seen == [moving]


@pytest.mark.parametrize(
    ("words", "problem", "said"),
    [
        (("--upgrade", "--only", "dokcer"), "no-such-component", "did you mean docker?"),
        (("--upgrade", "--only", "kernel"), "no-such-component", "cuda, docker, driver, environments"),
        (("--only", "docker"), "only-without-upgrade", "gpustrap plan --upgrade --only docker"),
        (
            ("--set", "gpustrap_docker=false"),
            "options-do-not-mix",
            "set gpustrap_docker in inventory/group_vars/all.yml",
        ),
        (("--from-facts", "x", "--check"), "options-do-not-mix", "--from-facts does not look at"),
        (("--from-facts", "x", "--upgrade"), "options-do-not-mix", "leave --upgrade or --from-facts out"),
        (("--from-facts", "x", "--limit", "n1"), "options-do-not-mix", "leave --limit or --from-facts out"),
        (("--from-facts", "x", "--set", "gpustrap_dokcer=1"), "unknown-variable", "did you mean gpustrap_docker?"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_way_out(
    run: Run, words: tuple[str, ...], problem: str, said: str
) -> None:
    code, text = run(*words)
    assert code == 2
    assert problem in text
    assert said in " ".join(text.split())


def test_the_same_trouble_of_many_nodes_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    one = Problem("no-driver", "node n0", "no driver drives it", ExitCode.REFUSED, "GPU", "buy another")
    many = [Problem("no-driver", f"node n{i}", one.message, one.exit_code, "GPU", "buy another") for i in range(8)]
    other = Problem("no-driver", "node x", "no driver drives it", ExitCode.REFUSED, "another GPU", "buy another")
    show_problems([*many, other, Problem("gone", "file a", "is gone", ExitCode.USAGE)])
    said = capfd.readouterr().err
    assert "✗ nodes n0, n1, n2, n3, n4, n5 and 2 more: no driver drives it" in said
    assert "✗ node x: no driver drives it" in said
    assert "✗ file a: is gone" in said
    assert said.count("no driver drives it") == 2


def test_why_a_node_cannot_be_asked_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "load_nodes", lambda *_: (Node(Endpoint("n1", "192.0.2.1"), (), Request()),))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["plan"])
    said = done.output + "".join(capfd.readouterr())
    assert (done.exit_code, said.count("is not enrolled"), said.count("FAIL [n1]")) == (4, 1, 1)
