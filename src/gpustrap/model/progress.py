"""How a use-case says what it is doing, without knowing whether a terminal, a file or nobody listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# How a node ends that has a problem: the command shows it at its end, in full and with the way out, and not here, too.
SEE_BELOW = "failed, see below"


@dataclass(frozen=True, slots=True)
class Step:
    """Something happened on a node.

    Attributes:
        node: Inventory name; empty for the run as a whole.
        text: What is being done, or how it ended; short, may come from a node (escaped when shown).
        done: The node is finished.
        ok: With ``done``: whether it ended well.
    """

    node: str
    text: str
    done: bool = False
    ok: bool = True


Progress = Callable[[Step], None]


def silent(_step: Step) -> None:
    """Nobody listens."""
