"""One node's answer to drift: in sync only if everything is known and as it should be."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console

from gpustrap.commands.drift import compare
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.lock import Choice, Lock, NodeLock
from gpustrap.model.node import Endpoint, Node
from gpustrap.model.request import Request
from gpustrap.report.drift_text import render
from gpustrap.resolve.digests import entry_digest

NODE = Node(Endpoint("n1", "n1"), (), Request())
ENTRY = NodeLock(request_digest="a", system_digest="b", os="debian 13", choices=(), roles={"docker": {}})
LOCK = Lock(tool="t", catalog="c", nodes={"n1": ENTRY})
RUN = {"id": "r1", "complete": True}
ITEM = {
    "kind": "package",
    "name": "jq",
    "role": "ubuntu_server",
    "wanted": {"version": "1.6", "hold": False},
    "found": {},
    "unknown": "",
}


def answer(**changed: Any) -> dict[str, Any]:
    good = {
        "ledger_run": RUN,
        "lock_digest": entry_digest(ENTRY),
        "open_run": None,
        "unknown": "",
        "items": [],
        "checked": 3,
    }
    return good | changed


@pytest.mark.parametrize(
    ("said", "code", "problems", "items"),
    [
        (answer(), ExitCode.OK, [], 0),
        (answer(items=[ITEM]), ExitCode.DRIFTED, [], 1),
        (answer(items=[ITEM | {"unknown": "no permission"}]), ExitCode.COULD_NOT_CHECK, [], 1),
        (answer(lock_digest="sha256:other"), ExitCode.DRIFTED, [], 1),
        (answer(open_run="r2"), ExitCode.COULD_NOT_CHECK, ["run-incomplete"], 0),
        (answer(ledger_run=None, open_run="r2"), ExitCode.COULD_NOT_CHECK, ["run-incomplete"], 0),
        (answer(ledger_run={"id": "r1", "complete": False}), ExitCode.COULD_NOT_CHECK, ["run-incomplete"], 0),
        (answer(ledger_run=None), ExitCode.COULD_NOT_CHECK, ["no-ledger"], 0),
        (answer(unknown="corrupt", ledger_run=None), ExitCode.COULD_NOT_CHECK, ["ledger-unreadable"], 0),
        ({"items": "nonsense"}, ExitCode.COULD_NOT_CHECK, ["ledger-unreadable"], 0),
        (
            GpustrapError(Problem("unreachable", "node n1", "no answer", ExitCode.UNREACHABLE)),
            ExitCode.UNREACHABLE,
            ["unreachable"],
            0,
        ),
    ],
)
def test_compare(said: Any, code: ExitCode, problems: list[str], items: int) -> None:
    found = compare(NODE, said, LOCK)
    assert (found.exit_code, [p.code for p in found.problems], len(found.items)) == (code, problems, items)
    assert found.in_sync is (code is ExitCode.OK)


@pytest.mark.parametrize("lock", [None, LOCK.model_copy(update={"nodes": {}})])
def test_a_node_that_is_not_planned_is_never_in_sync(lock: Lock | None) -> None:
    assert compare(NODE, answer(), lock).exit_code is ExitCode.COULD_NOT_CHECK


def text(*answers: dict[str, Any]) -> str:
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(render([compare(NODE, said, LOCK) for said in answers]))
    return capture.get()


def test_the_table_says_what_who_and_what_next() -> None:
    shown = text(answer(items=[ITEM]))
    row = next(line for line in shown.splitlines() if "package jq" in line)
    assert row.split()[-1] == "ubuntu_server"
    assert "1.6" in row
    assert "hold" not in row
    assert "absent" in row
    assert "Next: gpustrap apply n1" in shown


def test_a_stand_in_of_the_lab_is_told_in_sync_or_not() -> None:
    choice = Choice(item="conda", value="x", reason="r", source="s", simulated=True)
    entry = ENTRY.model_copy(update={"choices": (choice,)})
    lock = LOCK.model_copy(update={"nodes": {"n1": entry}})
    console = Console(width=160, no_color=True)
    for said in (answer(lock_digest=entry_digest(entry)), answer(items=[ITEM])):
        found = compare(NODE, said, lock)
        assert found.as_data()["simulated"] is True
        with console.capture() as capture:
            console.print(render([found]))
        assert "(simulated)" in capture.get().splitlines()[0]
    assert compare(NODE, answer(), LOCK).as_data()["simulated"] is False
    assert "simulated" not in text(answer())


def test_only_what_differs_is_shown_and_no_digest_in_full() -> None:
    item = {
        "kind": "file",
        "name": "/etc/x",
        "role": "docker",
        "wanted": {"sha256": "a" * 64, "mode": "0644"},
        "found": {"sha256": "b" * 64, "mode": "0644"},
    }
    shown = text(answer(items=[item]))
    assert "content aaaaaaaa…" in shown
    assert "mode" not in shown
    assert "a" * 10 not in shown


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"lock": "0123", "fingerprint": "b", "changed": "gone torch-2.14.0"}, "as it was built  gone torch-2.14.0"),
        ({"lock": "4567", "fingerprint": "b"}, "lock 0123…  lock 4567…"),
        ({}, "built  absent"),
    ],
)
def test_what_somebody_did_to_an_environment_is_told_by_package(found: dict[str, str], words: str) -> None:
    item = {
        "kind": "environment",
        "name": "/opt/gpustrap/envs/torch",
        "role": "ml_environments",
        "wanted": {"lock": "0123", "fingerprint": "a"},
        "found": found,
    }
    result = compare(NODE, answer(items=[item]), LOCK)
    assert result.exit_code is ExitCode.DRIFTED
    console = Console(width=160, record=True)
    console.print(render([result]))
    assert words in re.sub(" {3,}", "  ", console.export_text())


def test_a_node_cannot_write_to_the_terminal() -> None:
    assert "\x1b[31m" not in text(answer(items=[ITEM | {"name": "\x1b[31mred"}]))
