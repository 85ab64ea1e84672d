"""env: what nodes have against what the lock wants, a shell in an environment, and the file that it is locked to."""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gpustrap.cli.app import app
from gpustrap.commands import environments as command
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.built import BuiltEnvironment, State
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Endpoint, Node, Secrets
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.report.environments_text import render

TEXT = "torch==2.14.0 \\\n    --hash=sha256:abc\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
TORCH = {
    "name": "torch",
    "framework": "pytorch",
    "version": "2.14.0",
    "variant": "cu130",
    "python": "3.12",
    "lock": "environments/torch-abc.txt",
    "digest": DIGEST,
}
MARKER = {"lock": DIGEST[:16], "framework": "pytorch", "version": "2.14.0", "variant": "cu130", "python": "3.12"}


def entry(*environments: dict[str, Any], prefix: str = "/srv/envs") -> NodeLock:
    role = {"ml_environments_prefix": prefix, "ml_environments_environments": list(environments)}
    return NodeLock(request_digest="a", system_digest="b", os="debian 13", choices=(), roles={"ml_environments": role})


def node(name: str = "n1", **endpoint: Any) -> Node:
    return Node(Endpoint(name, name, **endpoint), (), Request())


def build(name: str = "torch", **changed: Any) -> dict[str, Any]:
    marker = {**MARKER, "built": "2026-12-01T04:05:06Z"} | changed.pop("marker", {})
    return {"name": name, "path": f"/srv/envs/{name}/{DIGEST[:16]}", "current": True, "marker": marker} | changed


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/torch-abc.txt").write_text(TEXT)
    lock = Lock(tool="t", catalog="c", nodes={"n1": entry(TORCH)})
    monkeypatch.setattr(command, "read_lock", lambda _: lock)
    return Site(tmp_path)


def listing(site: Site, monkeypatch: pytest.MonkeyPatch, answer: Any, name: str = "n1") -> command.Listing:
    asked = {}

    def ask(_site: Site, nodes: Any, verb: str, arguments: Any, **_: Any) -> dict[str, Any]:
        asked.update({n.name: (verb, arguments(n)) for n in nodes})
        return {n.name: answer for n in nodes}

    monkeypatch.setattr(command, "ask_verb", ask)
    found = command.list_environments(site, [node(name)], secrets=Secrets())
    assert asked == {name: ("environments", {"prefix": "/srv/envs" if name == "n1" else "/opt/gpustrap/envs"})}
    return found


@pytest.mark.parametrize(
    ("builds", "states"),
    [
        ([], [State.MISSING]),
        ([build()], [State.READY]),
        ([build(changes=["added numpy-2.0"])], [State.CHANGED]),
        ([build(marker={"lock": "f" * 16})], [State.OUTDATED]),
        ([build(marker={"lock": ""})], [State.UNKNOWN]),
        ([build(marker={"lock": ""}, current=False)], [State.MISSING, State.HALF_BUILT]),
        ([build(), build(current=False, previous=True)], [State.READY, State.PREVIOUS]),
        ([build(current=False)], [State.MISSING, State.PREVIOUS]),
        ([build(), build("old")], [State.READY, State.UNWANTED]),
    ],
)
def test_state(site: Site, monkeypatch: pytest.MonkeyPatch, builds: list[Any], states: list[State]) -> None:
    found = listing(site, monkeypatch, {"environments": builds})
    assert [row.state for row in found.rows] == states
    assert found.exit_code is ExitCode.OK


def test_a_node_that_is_not_planned_is_listed_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [r.state for r in listing(site, monkeypatch, {"environments": [build()]}, "n2").rows] == [State.UNWANTED]


@pytest.mark.parametrize("answer", [{"environments": 7}, {"environments": [{"name": ["x"]}]}], ids=str)
def test_an_answer_that_cannot_be_read(site: Site, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    found = listing(site, monkeypatch, answer)
    assert (found.rows, found.exit_code) == ((), ExitCode.COULD_NOT_CHECK)


def test_a_node_that_does_not_answer_hides_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = GpustrapError(Problem("unreachable", "node n1", "does not answer", ExitCode.UNREACHABLE))
    assert listing(site, monkeypatch, gone).exit_code is ExitCode.UNREACHABLE


def shown(*rows: BuiltEnvironment) -> str:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(render(rows))
    return console.export_text()


def test_table(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [f"added p{n}-1.0" for n in range(5)]
    said = shown(*listing(site, monkeypatch, {"environments": [build(changes=changes)]}).rows)
    assert "torch" in said
    assert "2.14.0 cu130" in said
    assert "2026-12-01 04:05" in said
    assert "changed by hand: added p0-1.0, added p1-1.0, added p2-1.0 and 2 more" in said
    assert said.rstrip().endswith("Next: gpustrap apply n1")
    assert "Next:" not in shown(*listing(site, monkeypatch, {"environments": [build()]}).rows)
    assert shown().strip() == "No environments."


def test_what_a_node_sends_cannot_move_the_cursor(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown(*listing(site, monkeypatch, {"environments": [build("\x1b[2Jx")]}).rows)
    assert "\x1b[2J" not in said


def test_export(site: Site) -> None:
    assert command.export(site, "n1", "torch") == TEXT


@pytest.mark.parametrize(
    ("node_name", "name", "code"), [("n2", "torch", "not-planned"), ("n1", "jax", "environment-unknown")]
)
def test_export_of_what_is_not_there(site: Site, node_name: str, name: str, code: str) -> None:
    with pytest.raises(GpustrapError) as error:
        command.export(site, node_name, name)
    assert error.value.problems[0].code == code


def test_export_of_a_file_that_somebody_changed(site: Site) -> None:
    file = site.root / "environments/torch-abc.txt"
    file.write_text(TEXT + "evil==1.0\n")
    with pytest.raises(GpustrapError, match="somebody changed it") as error:
        command.export(site, "n1", "torch")
    assert error.value.problems[0].code == "environment-file-changed"
    file.unlink()
    with pytest.raises(GpustrapError) as error:
        command.export(site, "n1", "torch")
    assert error.value.problems[0].code == "environment-file-missing"


def test_shell_through_ssh(site: Site) -> None:
    with command.shell(site, node(port=2222, user="ubuntu", ssh_args=("-o", "Compression=yes")), "torch") as words:
        assert words[:2] == ["ssh", "-t"]
        assert f'UserKnownHostsFile="{site.known_hosts}" ' in " ".join(words)
        assert words[-7:-1] == ["-p", "2222", "-l", "ubuntu", "--", "n1"]
        assert "Compression=yes" in words
        script = shlex.split(words[-1])
    assert script[:2] == ["sh", "-c"]


def test_shell_on_this_machine_is_the_environments(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippet = tmp_path / "snippet.sh"
    snippet.write_text("gpuenv() { export ACTIVE=$1; }\n")
    monkeypatch.setattr(command, "SNIPPET", str(snippet))
    with command.shell(site, node(local=True), "torch") as words:
        done = subprocess.run(
            words, input="echo active $ACTIVE", env={"SHELL": "/bin/sh"}, capture_output=True, text=True
        )
    assert done.stdout == "active torch\n"


def test_shell_in_an_environment_that_is_not_in_the_lock(site: Site) -> None:
    with pytest.raises(GpustrapError, match="no environment x: it has torch"), command.shell(site, node(), "x"):
        pass


def test_without_a_terminal_the_command_is_printed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustrap.site.inventory.load_nodes", lambda *_: (node(),))
    done = CliRunner().invoke(app, ["env", "shell", "n1", "torch", "--site", str(site.root)])
    assert done.exit_code == 0, done.output
    assert shlex.split(done.output)[0] == "ssh"


def test_list_as_json(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpustrap.site.inventory.load_nodes", lambda *_: (node(),))
    monkeypatch.setattr(command, "ask_verb", lambda *_, **__: {"n1": {"environments": [build()]}})
    done = CliRunner().invoke(app, ["env", "list", "--format", "json", "--site", str(site.root)])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)["environments"]
    assert (row["name"], row["state"], row["version"]) == ("torch", "ready", "2.14.0 cu130")
