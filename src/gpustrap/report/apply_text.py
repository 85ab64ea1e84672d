"""One apply, for a terminal: the run's short report and, in check mode, what would change."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.model.lock import Lock
from gpustrap.model.run import Outcome, RunSummary
from gpustrap.report import run_report, run_text
from gpustrap.report.escape import one_line
from gpustrap.report.layout import Hanging
from gpustrap.report.next_step import next_step
from gpustrap.report.view import view_run


def render(summary: RunSummary, lock: Lock | None, directory: Path) -> RenderableType:
    """The run as a block of text.

    Args:
        summary: The run.
        lock: The lock it used.
        directory: Where it is written down.
    """
    parts: list[RenderableType] = [run_text.render(view_run(summary, lock))]
    if summary.check:
        for node in summary.nodes:
            if node.changed_tasks:
                parts += [Text(), Text(f"{one_line(node.node)} would change:", style="bold")]
                parts += [Hanging(one_line(task), "  ", "    ") for task in node.changed_tasks]
    parts += [Text(), Text(f"Report: {directory / run_report.HTML}", style="dim")]
    well = [n.node for n in summary.nodes if n.outcome in {Outcome.CHANGED, Outcome.UNCHANGED}]
    if summary.tags and well and not summary.check:
        counts = "counts" if len(well) == 1 else "count"
        text = (
            f"{', '.join(well)} now {counts} as incomplete until a whole apply. Next: gpustrap apply {' '.join(well)}"
        )
        parts.append(Hanging(next_step(one_line(text)), "", "  "))
    return Group(*parts)
