"""What an apply says last in a terminal."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.run import NodeRun, Outcome, RunSummary
from gpustrap.report.apply_text import render


def last_line(*outcomes: Outcome, **changed: Any) -> str:
    nodes = tuple(NodeRun(node=f"n{i}", outcome=o) for i, o in enumerate(outcomes, start=1))
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(render(RunSummary(id="r", started="", seconds=1, nodes=nodes, **changed), None, Path("/runs/r")))
    return str(console.file.getvalue().rstrip().splitlines()[-1])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("outcomes", "line"),
    [
        (
            [Outcome.UNCHANGED],
            "n1 now counts as incomplete until a whole apply. Next: gpustrap apply n1",
        ),
        (
            [Outcome.CHANGED, Outcome.FAILED, Outcome.UNCHANGED],
            "n1, n3 now count as incomplete until a whole apply. Next: gpustrap apply n1 n3",
        ),
    ],
)
def test_after_some_roles_the_whole_is_still_to_come(outcomes: list[Outcome], line: str) -> None:
    assert last_line(*outcomes, tags=("docker",)) == line


@pytest.mark.parametrize(
    ("outcome", "changed"),
    [
        (Outcome.CHANGED, {}),
        (Outcome.FAILED, {"tags": ("docker",)}),
        (Outcome.UNCHANGED, {"tags": ("docker",), "check": True}),
    ],
)
def test_otherwise_the_report_is_the_last_thing_said(outcome: Outcome, changed: dict[str, Any]) -> None:
    assert last_line(outcome, **changed).startswith("Report: ")


def test_what_this_version_does_not_install_is_said_once_for_all_nodes() -> None:
    pending = {"nvidia_driver": {"nvidia_driver_branch": "580"}}
    entry = NodeLock(request_digest="r", system_digest="s", os="d", choices=(), roles={}, pending=pending)
    nodes = tuple(NodeRun(node=f"n{i}", outcome=Outcome.CHANGED) for i in (1, 2))
    lock = Lock(tool="t", catalog="c", nodes={"n1": entry, "n2": entry, "other": entry})
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(render(RunSummary(id="r", started="", seconds=1, nodes=nodes), lock, Path("/runs/r")))
    text = str(console.file.getvalue())  # type: ignore[attr-defined]
    assert text.count("Planned for n1, n2, but not installed by this version of gpustrap yet: nvidia_driver") == 1
    assert text.count("nvidia_driver") == 1
