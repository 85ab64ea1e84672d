"""A removal, for a terminal: what would go and what stays, node by node; then how it went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.model.removal import Removal
from gpustrap.model.run import NodeRun, Outcome
from gpustrap.report.escape import one_line
from gpustrap.report.layout import Hanging
from gpustrap.report.next_step import next_step
from gpustrap.report.verify_text import mark
from gpustrap.report.view import counted


def foreseen(node: str, found: Removal) -> RenderableType:
    """What would go from a node, and what stays."""
    packages, files = found.packages, found.files
    name = (f"{one_line(node)}  ", "bold")
    if not packages and not files:
        head = Text.assemble(name, mark("good", "nothing of gpustrap's is left to remove"))
    else:
        head = Text.assemble(name, f"{counted(len(packages), 'package')} and {counted(len(files), 'file')} would go")
    return Group(
        head,
        *_list("remove", [" ".join(packages)]),
        *_list("unhold", [" ".join(found.released)]),
        *_list("delete", files),
        *_list("stays", found.kept),
    )


def _list(word: str, lines: Iterable[str]) -> list[RenderableType]:
    return [Hanging(one_line(line), Text(f"  {word}  ", style="dim")) for line in lines if line]


def ended(nodes: Sequence[NodeRun]) -> RenderableType:
    """How it went on each node, and the next command where one is needed."""
    parts: list[RenderableType] = []
    for node in nodes:
        name = (f"{one_line(node.node)}  ", "bold")
        if node.failure:
            parts.append(Hanging(Text.assemble(name, mark("bad", node.outcome.value)), "", "  "))
            parts += [Hanging(one_line(line), "    ") for line in node.failure.message.splitlines()]
            parts.append(_next(node.failure.hint))
            continue
        said = "removed" if node.outcome is Outcome.CHANGED else "nothing was left to remove"
        if node.boots:
            step = node.boots[0]
            said = f"removed, and rebooted in {step.seconds} s" if step.state == "rebooted" else one_line(step.reason)
        parts.append(Hanging(Text.assemble(name, mark("warn" if node.waiting else "good", said)), "", "  "))
        if node.waiting:
            parts.append(_next(node.waiting.remedy))
    return Group(*parts)


def _next(command: str) -> RenderableType:
    return Hanging(one_line(next_step(command)), Text("    Next: ", style="bold"))
