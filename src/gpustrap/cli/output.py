"""Where words go: results to stdout, people and progress to stderr. Colour is only a second signal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from gpustrap.errors import Problem
from gpustrap.report.escape import one_line, visible
from gpustrap.report.layout import Hanging
from gpustrap.report.next_step import next_step

# A pipe or a file has no width of its own; 80 would cut tables that nobody needs cut.
# Text is what it is: neither [bold] nor :1234:, as PCI ids and image tags have it, means anything; and what is wider
# than the terminal is not cut off.
stdout = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=None if sys.stdout.isatty() else 140)
stderr = Console(
    stderr=True,
    highlight=False,
    markup=False,
    emoji=False,
    soft_wrap=True,
    width=None if sys.stderr.isatty() else 140,
)

NODE = "node "
MOST_NODES = 6


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


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
        stderr.print(refusal(f"{problem.subject}: {problem.message}"))
        for line in problem.evidence.strip().splitlines()[:20]:
            bar = Text("    │ ", style="dim")
            stderr.print(Hanging(Text(visible(line), style="dim"), bar, bar))
        if problem.remedy:
            stderr.print(follow_up(next_step(problem.remedy)))
        stderr.print(Text(f"    ({visible(problem.code)})", style="dim"))


def refusal(text: str) -> Hanging:
    """What was wrong, beside its mark."""
    return Hanging(visible(text), Text("✗ ", style="red"))


def follow_up(text: str) -> Hanging:
    """The next step, under what was wrong."""
    return Hanging(visible(text), Text.assemble("    ", ("Next:", "bold"), " "))


def tell(text: str) -> None:
    """A sentence for people, beside the result; where it goes on, it is indented."""
    stderr.print(Hanging(one_line(text), "", "  "))


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
    stderr.print(f"Next: {next_step(visible(command))}")
