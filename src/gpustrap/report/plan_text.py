"""A plan for people: what was decided, why, and what that changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gpustrap.model.lock import Choice, NodeLock


def render(nodes: Mapping[str, NodeLock], changes: Iterable[str], *, complete: bool = True) -> RenderableType:
    """Nodes with the same plan share a table, so that a rack of equal machines is one.

    Args:
        nodes: The plans.
        changes: What they change.
        complete: Every node has a plan; only then can it be said that nothing changes.
    """
    alike: dict[tuple[Choice, ...], list[str]] = {}
    for name in sorted(nodes):
        alike.setdefault(nodes[name].choices, []).append(name)
    parts: list[RenderableType] = [_table(names, choices) for choices, names in alike.items()]
    lines = list(changes)
    if lines:
        parts += [Text("Changes:"), *(Text(f"  {line}") for line in lines)]
    elif complete:
        parts.append(Text("Nothing changes."))
    return Group(*parts)


def _table(names: list[str], choices: tuple[Choice, ...]) -> Table:
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    table = Table(title=escape(shown), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("choice", "value", "why"):
        table.add_column(heading, overflow="fold")
    for choice in choices:
        marks = [m for m, on in (("simulated", choice.simulated), ("recalled", choice.confidence == "recalled")) if on]
        why = choice.reason + (f" ({', '.join(marks)})" if marks else "")
        table.add_row(choice.item, escape(choice.value), escape(why))
    return table
