"""What the resolver says of one node: the entry for the lock or refusals, what it noticed, and how it got there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpustrap.errors import Problem
from gpustrap.model.base import Frozen
from gpustrap.model.lock import NodeLock

Severity = Literal["note", "warning"]


class Finding(Frozen):
    """Something about a node that a person should know. It stops nothing: what does is a `Problem`.

    Attributes:
        code: Stable kebab-case name; docs and tests refer to it.
        subject: What it is about: ``GPU 0000:01:00.0 (GeForce RTX 3090)``, ``/boot``, …; empty for the whole node.
        message: One sentence without a trailing full stop.
        evidence: What was read on the node, or the catalog row.
        advice: What to do about it; in the firmware, on the node, or in the inventory.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    evidence: str = ""
    advice: str = ""


class Reasoning(Frozen):
    """How one choice was made, in sentences for a person, in order."""

    item: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The plan of one node.

    Attributes:
        lock: Its entry for the lock; None where there are problems.
        problems: Every reason why there can be no plan.
        findings: What was noticed; also where the plan is refused.
        reasoning: Item by item, in the order of decision.
    """

    lock: NodeLock | None
    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
