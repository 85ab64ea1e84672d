"""One run, for a terminal: the short form of the report."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpustrap.report.escape import one_line, visible
from gpustrap.report.next_step import next_step
from gpustrap.report.verify_text import STYLES, mark
from gpustrap.report.view import NodeView, RunView, duration

MESSAGE_LINES = 8


def render(view: RunView) -> RenderableType:
    """Headline, a line for each node, what failed, and the next steps."""
    parts: list[RenderableType] = [
        Text.assemble(("Run ", "dim"), one_line(view.summary.id)),
        Text(one_line(view.headline), style=f"bold {STYLES[view.tone]}"),
        Text(f"{one_line(view.asked)}. Started {one_line(view.started)}, took {duration(view.summary.seconds)}."),
    ]
    if view.simulated:
        parts.append(Text("Simulated: this run rests on stand-ins of the lab.", style="magenta"))
    parts += [Text(), _table(view)]
    for node in view.nodes:
        parts += _failure(node)
    if view.pending:
        parts += [Text(), Text(view.pending)]
    if view.steps:
        parts += [Text(), Text("Next steps", style="bold")]
        parts += [
            Text.assemble("  ", (one_line(s.node), "bold"), f" {one_line(s.what)}\n    {next_step(one_line(s.step))}")
            for s in view.steps
        ]
    return Group(*parts)


def _table(view: RunView) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("Node", overflow="fold")
    table.add_column("Apply", no_wrap=True)
    table.add_column("Changed", justify="right")
    table.add_column("Verified", no_wrap=True)
    table.add_column("Time", justify="right", no_wrap=True)
    for node in view.nodes:
        verified = mark(node.verdict_tone, node.verdict.value if node.verdict else "not verified")
        apply = mark(node.tone, node.outcome)
        table.add_row(Text(one_line(node.name)), apply, str(node.run.changed), verified, duration(node.run.seconds))
    return table


def _failure(node: NodeView) -> list[Text]:
    failure = node.run.failure
    if not failure:
        return []
    where = f"{one_line(node.name)}: {one_line(failure.role)}: {one_line(failure.task)}"
    lines = visible(failure.message.strip()).splitlines()[:MESSAGE_LINES]
    return [Text(), Text(where, style=STYLES["bad"]), *(Text(f"  │ {line}", style="dim") for line in lines)]
