"""Drift, for a terminal: what is not as it should be, which role repairs it, and the next command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.model.drift import LOCK, NodeDrift
from gpustrap.model.ledger import DriftItem, Kind
from gpustrap.report.escape import one_line
from gpustrap.report.layout import Columns, Hanging
from gpustrap.report.next_step import next_step
from gpustrap.report.verify_text import mark
from gpustrap.report.view import counted

SHORT_DIGEST = 8
SHOWN = 3  # packages of an environment that somebody changed
PLAIN = {"version", "active", "enabled"}  # the value alone says it


def render(nodes: Sequence[NodeDrift]) -> RenderableType:
    """A line for each node, a table of what differs, and the next command."""
    parts: list[RenderableType] = [_headline(node) for node in nodes]
    items = [(node.node, item) for node in nodes for item in node.items]
    if items:
        parts += [Text(), _table(items)]
    drifted = [node.node for node in nodes if node.items]
    if drifted:
        command = next_step(f"gpustrap apply {' '.join(map(one_line, drifted))}")
        parts += [Text(), Hanging(command, Text("Next: ", style="bold"))]
    return Group(*parts)


def _headline(node: NodeDrift) -> Hanging:
    name = (f"{one_line(node.node)}  ", "bold")
    simulated = (" (simulated)" if node.simulated else "", "magenta")
    if node.in_sync:
        said = mark("good", f"in sync, {counted(node.checked, 'resource')} compared")
        return Hanging(Text.assemble(name, said, simulated), "", "  ")
    words = [counted(len(node.items), "difference")] if node.items else []
    words += [one_line(problem.message) for problem in node.problems]
    said = mark("bad" if node.items else "warn", "; ".join(words))
    return Hanging(Text.assemble(name, said, simulated), "", "  ")


def _table(items: Sequence[tuple[str, DriftItem]]) -> Columns:
    rows = []
    for name, item in items:
        wanted, found = words(item)
        resource = f"{item.kind} {item.name}"
        rows.append([one_line(cell) for cell in (name, resource, wanted, found, item.role or "all")])
    return Columns(("Node", "Resource", "Wanted", "Found", "Role"), rows, named=False)


def words(item: DriftItem) -> tuple[str, str]:
    """What was wanted and what was found, in words; only what differs."""
    if item.kind == LOCK:
        return "the lock of now", "an earlier lock"
    if item.unknown:
        return _state(item.wanted, item.wanted), f"unknown: {item.unknown}"
    if item.kind == Kind.ENVIRONMENT:
        return _environment(item)
    keys = {k: None for k in (*item.wanted, *item.found) if item.wanted.get(k) != item.found.get(k)}
    return _state(item.wanted, keys), _state(item.found, keys)


def _environment(item: DriftItem) -> tuple[str, str]:
    """What somebody did to an environment, by the names of packages."""
    if not item.found:
        return "built", "absent"
    changes = str(item.found.get("changed") or "").split(", ")
    if changes == [""]:
        wanted, found = (str(state.get("lock"))[:SHORT_DIGEST] for state in (item.wanted, item.found))
        return f"lock {wanted}…", f"lock {found}…"
    more = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return "as it was built", f"{', '.join(changes[:SHOWN])}{more}"


def _state(state: Mapping[str, Any], keys: Mapping[str, Any]) -> str:
    if not state:
        return "absent"
    shown = []
    for key in keys:
        value = state.get(key)
        if value in (None, False):
            continue
        if key == "sha256":
            shown.append(f"content {str(value)[:SHORT_DIGEST]}…")
        elif key in PLAIN:
            shown.append(str(value))
        else:
            shown.append(key if value is True else f"{key} {value}")
    return ", ".join(shown) or "present"
