"""Progress on stderr: one live line per node on a terminal, plain timestamped lines without one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gpustrap.cli.output import stderr
from gpustrap.model.progress import Progress, Step
from gpustrap.report.escape import visible
from gpustrap.report.layout import Hanging

MAX_LINES = 20  # of a rack, show the busy ones; the rest is counted


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Give a `Progress` that shows each node's last step while the block runs."""
    if not stderr.is_terminal:
        yield _plain(time.monotonic())
        return
    board = _Board(title)
    with Live(get_renderable=board.draw, console=stderr, refresh_per_second=8, transient=True):
        yield board.take
    for line in board.finished_lines():
        stderr.print(line)


def _plain(start: float) -> Progress:
    def say(step: Step) -> None:
        mark = ("ok  " if step.ok else "FAIL") if step.done else "    "
        where = f"[{visible(step.node)}] " if step.node else ""
        stderr.print(f"{time.monotonic() - start:6.1f}s {mark} {where}{visible(step.text)}")

    return say


class _Board:
    """The last step of each node, drawn on demand."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.start = time.monotonic()
        self.steps: dict[str, Step] = {}
        self.ended: dict[str, float] = {}
        self.spinner = Spinner("dots")

    def take(self, step: Step) -> None:
        """Remember a step; called from worker threads (a dict assignment is atomic)."""
        self.steps[step.node] = step
        if step.done:
            self.ended[step.node] = time.monotonic() - self.start

    def draw(self) -> Table:
        """The board now."""
        table = Table.grid(padding=(0, 1))
        elapsed = time.monotonic() - self.start
        steps = list(self.steps.values())
        running = [s for s in steps if not s.done]
        counts = f"  {len(steps) - len(running)}/{len(steps)} nodes done" if steps else ""
        table.add_row(
            self.spinner,
            Text(self.title, style="bold"),
            Text(f"{elapsed:.0f}s{counts}", style="dim"),
        )
        for step in (running or steps)[:MAX_LINES]:
            table.add_row("", visible(step.node), visible(step.text))
        if len(running) > MAX_LINES:
            table.add_row("", "", Text(f"… and {len(running) - MAX_LINES} more", style="dim"))
        return table

    def finished_lines(self) -> Iterator[Hanging]:
        """One line per node that ended, left on the screen after the board is gone."""
        width = max((len(visible(n)) for n in self.steps), default=0)
        for node, step in sorted(self.steps.items()):
            if step.done and node:
                mark = Text("✓ ", style="green") if step.ok else Text("✗ ", style="red")
                first = Text.assemble(mark, f"{visible(node).ljust(width)}  ")
                yield Hanging(Text.assemble(f"{visible(step.text)} ", (f"{self.ended[node]:.1f}s", "dim")), first)
