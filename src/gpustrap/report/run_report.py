"""Writes a run's reports beside its summary."""

from __future__ import annotations

from pathlib import Path

from gpustrap.model.lock import Lock
from gpustrap.model.run import RunSummary
from gpustrap.report import html, markdown
from gpustrap.report.view import view_run

HTML = "report.html"
MARKDOWN = "report.md"


def write(run_dir: Path, summary: RunSummary, lock: Lock | None) -> None:
    """Write report.md and report.html.

    Args:
        run_dir: The run's directory; exists.
        summary: The run.
        lock: The lock that the run used; None leaves out what each node was given and why.
    """
    view = view_run(summary, lock)
    (run_dir / MARKDOWN).write_text(markdown.render(view), encoding="utf-8")
    (run_dir / HTML).write_text(html.render(view), encoding="utf-8")
