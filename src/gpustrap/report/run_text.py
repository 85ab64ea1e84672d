"""One run, for a terminal: the short form of the report."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.report.escape import one_line, visible
from gpustrap.report.layout import Columns, Hanging
from gpustrap.report.next_step import next_step
from gpustrap.report.verify_text import STYLES, mark
from gpustrap.report.view import NodeView, RunView, duration

MESSAGE_LINES = 8


def render(view: RunView) -> RenderableType:
    """Headline, a line for each node, what failed, and the next steps."""
    parts: list[RenderableType] = [
        Text.assemble(("Run ", "dim"), one_line(view.summary.id)),
        Hanging(Text(one_line(view.headline), style=f"bold {STYLES[view.tone]}"), "", "  "),
        Hanging(_about(view), "", "  "),
    ]
    if view.simulated:
        parts.append(Text("Simulated: this run rests on stand-ins of the lab.", style="magenta"))
    parts += [Text(), _table(view)]
    for node in view.nodes:
        parts += _failure(node)
    if view.pending:
        parts += [Text(), Hanging(view.pending, "", "  ")]
    if view.steps:
        parts += [Text(), Text("Next steps", style="bold")]
        for step in view.steps:
            parts.append(Hanging(one_line(step.what), Text.assemble("  ", (one_line(step.node), "bold"), " "), "    "))
            parts.append(Hanging(next_step(one_line(step.step)), "    "))
    return Group(*parts)


def _about(view: RunView) -> str:
    return f"{one_line(view.asked)}. Started {one_line(view.started)}, took {duration(view.summary.seconds)}."


def _table(view: RunView) -> Columns:
    rows: list[tuple[str | Text, ...]] = []
    for node in view.nodes:
        verified = mark(node.verdict_tone, node.verdict.value if node.verdict else "not verified")
        apply = mark(node.tone, node.outcome)
        rows.append((one_line(node.name), apply, str(node.run.changed), verified, duration(node.run.seconds)))
    return Columns(("Node", "Apply", "Changed", "Verified", "Time"), rows, right=(2, 4), named=False)


def _failure(node: NodeView) -> list[RenderableType]:
    failure = node.run.failure
    if not failure:
        return []
    where = f"{one_line(node.name)}: {one_line(failure.role)}: {one_line(failure.task)}"
    lines = visible(failure.message.strip()).splitlines()[:MESSAGE_LINES]
    bar = Text("  │ ", style="dim")
    told = (Hanging(Text(line, style="dim"), bar, bar) for line in lines)
    return [Text(), Hanging(Text(where, style=STYLES["bad"]), "", "  "), *told]
