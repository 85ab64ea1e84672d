"""The environments of nodes, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.model.built import BuiltEnvironment, State
from gpustrap.report.escape import one_line
from gpustrap.report.layout import Columns, Hanging
from gpustrap.report.next_step import next_step
from gpustrap.report.verify_text import mark
from gpustrap.report.view import Tone

TONES: dict[State, Tone] = {State.READY: "good", State.PREVIOUS: "idle", State.UNWANTED: "idle"}
REPAIRED = (State.CHANGED, State.OUTDATED, State.MISSING, State.UNKNOWN)  # by an apply
SHOWN = 3
HEADS = ("Node", "Environment", "Framework", "Version", "Python", "Built", "State")


def render(rows: Sequence[BuiltEnvironment]) -> RenderableType:
    """A table, and the next command where an apply would change something."""
    if not rows:
        return Text("No environments.")
    table = Columns(HEADS, [_cells(row) for row in rows], named=False)
    nodes = dict.fromkeys(row.node for row in rows if row.state in REPAIRED)
    if not nodes:
        return table
    command = next_step(f"gpustrap apply {' '.join(map(one_line, nodes))}")
    return Group(table, Text(), Hanging(command, Text("Next: ", style="bold")))


def _cells(row: BuiltEnvironment) -> list[str | Text]:
    words = (row.node, row.name, row.framework, row.version, row.python, _when(row.built))
    return [*(one_line(word) for word in words), _state(row)]


def _when(built: str) -> str:
    """To the minute."""
    return built[:16].replace("T", " ")


def _state(row: BuiltEnvironment) -> Text:
    words = row.state.value
    if row.state is State.CHANGED:
        more = f" and {len(row.changes) - SHOWN} more" if len(row.changes) > SHOWN else ""
        words += f": {', '.join(map(one_line, row.changes[:SHOWN]))}{more}"
    return mark(TONES.get(row.state, "warn"), words)
