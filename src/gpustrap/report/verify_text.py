"""The checks of nodes, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.model.certificate import Fleet
from gpustrap.model.check import Check, NodeChecks, Verdict
from gpustrap.report.escape import one_line, visible
from gpustrap.report.layout import Columns, Hanging
from gpustrap.report.next_step import next_step
from gpustrap.report.view import VERDICT_TONES, Tone, counted, duration

STYLES: dict[Tone, str] = {"good": "green", "warn": "yellow", "bad": "red", "idle": "dim"}
MARKS: dict[Tone, str] = {"good": "✓", "warn": "!", "bad": "✗", "idle": "-"}
EVIDENCE_LINES = 12


def mark(tone: Tone, word: str) -> Text:
    """A sign and a word, in the tone's colour."""
    return Text(f"{MARKS[tone]} {word}", style=STYLES[tone])


def render(nodes: Iterable[NodeChecks]) -> RenderableType:
    """A block for each node: a table of its checks, and under it what each problem said and what to do."""
    parts: list[RenderableType] = []
    for node in nodes:
        parts += [_heading(node), _table(node), *_problems(node), Text()]
    return Group(*parts)


def render_changes(fleet: Fleet) -> RenderableType:
    """What differs from earlier certificates: what got worse first."""
    if not fleet.changes:
        return Text(f"Nothing differs from {one_line(fleet.against)}", style="green")
    rows: list[list[str | Text]] = []
    for change in sorted(fleet.changes, key=lambda change: not change.worse):
        word = mark("bad", "worse") if change.worse else mark("idle", "other")
        told = [one_line(text) for text in (change.node, change.subject, change.before, change.after)]
        rows.append([word, *told])
    head = Text(f"Against {one_line(fleet.against)}", style="bold")
    return Group(head, Columns(("What", "Node", "Where", "Before", "Now"), rows, named=False))


def _heading(node: NodeChecks) -> Hanging:
    bad = sum(c.verdict is Verdict.FAIL for c in node.checks)
    warnings = sum(c.verdict is Verdict.WARN for c in node.checks)
    counts = [counted(len(node.checks), "check")]
    counts += [f"{bad} failed"] * bool(bad) + [counted(warnings, "warning")] * bool(warnings)
    verdict = mark(VERDICT_TONES[node.verdict], node.verdict.value)
    said = Text.assemble((one_line(node.node), "bold"), "  ", verdict, (f"  {', '.join(counts)}", "dim"))
    return Hanging(said, "", "  ")


def _table(node: NodeChecks) -> Columns:
    rows = []
    for check in node.checks:
        verdict = Text.assemble("  ", mark(VERDICT_TONES[check.verdict], check.verdict.value))
        name = Text.assemble(one_line(check.title), (" (simulated)" if check.simulated else "", "magenta"))
        rows.append((verdict, name, duration(check.seconds), one_line(check.reason)))
    return Columns(("  Verdict", "Check", "Time", "Reason"), rows, right=(2,), named=False)


def _problems(node: NodeChecks) -> Iterable[RenderableType]:
    for check in node.checks:
        if check.verdict in {Verdict.FAIL, Verdict.WARN} and (check.evidence or check.remedy):
            yield from _problem(check)


def _problem(check: Check) -> Iterable[RenderableType]:
    yield Text(f"  {one_line(check.title)}:", style=STYLES[VERDICT_TONES[check.verdict]])
    lines = visible(check.evidence.strip()).splitlines()
    for line in lines[:EVIDENCE_LINES]:
        bar = Text("    │ ", style="dim")
        yield Hanging(Text(line, style="dim"), bar, bar)
    if len(lines) > EVIDENCE_LINES:
        yield Text(f"    │ … {counted(len(lines) - EVIDENCE_LINES, 'more line')}", style="dim")
    if check.remedy:
        yield Hanging(next_step(one_line(check.remedy)), Text.assemble("    ", ("Next:", "bold"), " "))
