"""Where words go: results to stdout, people and progress to stderr. Colour is only a second signal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from gpustrap.errors import Problem
from gpustrap.report.escape import visible
from gpustrap.report.next_step import next_step

# A pipe or a file has no width of its own; 80 would cut tables that nobody needs cut.
stdout = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 140)
stderr = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 140)

NODE = "node "
MOST_NODES = 6


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


def clean(text: str) -> str:
    """Make text from a node safe for a terminal: controls become visible escapes, markup is inert."""
    return escape(visible(text))


def emit(data: Any, table: RenderableType, form: Format) -> None:  # noqa: ANN401 - whatever json takes
    """Print a result: as JSON for machines, or as the given table for people."""
    if form is Format.JSON:
        stdout.file.write(json.dumps(data, indent=2, sort_keys=True, default=str) + "\n")
        stdout.file.flush()
    else:
        stdout.print(table)


def show_problems(problems: Iterable[Problem]) -> None:
    """Print problems for a tired person: where and what, the tool's words indented, the next step."""
    for problem in _merged(problems):
        stderr.print(Text.from_markup(f"[red]✗[/red] {clean(problem.subject)}: {clean(problem.message)}"))
        for line in problem.evidence.strip().splitlines()[:20]:
            stderr.print(Text.from_markup(f"    [dim]│ {clean(line)}[/dim]"), overflow="fold")
        if problem.remedy:
            stderr.print(
                Text.from_markup(f"    [bold]Next:[/bold] {clean(next_step(problem.remedy))}"), overflow="fold"
            )
        stderr.print(Text.from_markup(f"    [dim]({clean(problem.code)})[/dim]"))


def _merged(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The same trouble of many nodes is told once: a rack of equal machines has one refusal."""
    subjects: dict[Problem, list[str]] = {}
    for problem in problems:
        subjects.setdefault(replace(problem, subject=""), []).append(problem.subject)
    for problem, found in subjects.items():
        nodes = [subject.removeprefix(NODE) for subject in found if subject.startswith(NODE)]
        if len(nodes) == len(found) > 1:
            more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
            yield replace(problem, subject=f"nodes {', '.join(nodes[:MOST_NODES])}{more}")
        else:
            yield from (replace(problem, subject=subject) for subject in found)


def say_next(command: str) -> None:
    """Name the next command, beside the result."""
    stderr.print(f"Next: {next_step(visible(command))}", markup=False, soft_wrap=True)
