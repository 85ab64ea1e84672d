"""What one apply did, node by node. Written as summary.json in the run directory."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from gpustrap.model.base import Frozen
from gpustrap.model.check import NodeChecks


class Outcome(StrEnum):
    """How a node ended. ``unknown``: cancelled or lost in the middle, its state was not observed."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    WOULD_CHANGE = "would-change"  # check mode
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
    NOT_RUN = "not-run"  # refused or stopped before its turn


class TaskFailure(Frozen):
    """The task that failed, in the tool's own words."""

    role: str
    task: str
    message: str
    hint: str = ""


class BootStep(Frozen):
    """What was decided about a reboot, where the driver did not run already; docs/reboots.md lists the codes.

    Attributes:
        target: What a reboot is to bring.
        staged: The enrolment of the node's key was asked for in this run.
    """

    stage: Literal["kernel", "driver", "removal"]
    state: Literal["rebooted", "reboot-needed", "person", "next-boot", "useless", "lost"]
    code: str
    reason: str
    evidence: str = ""
    remedy: str = ""
    target: str = ""
    seconds: int = Field(default=0, description="from the order to reboot until its units had started")
    staged: bool = False


class NodeRun(Frozen):
    """One node of one run."""

    node: str
    outcome: Outcome
    ok: int = 0
    changed: int = 0
    skipped: int = 0
    failed: int = 0
    changed_tasks: tuple[str, ...] = ()
    failure: TaskFailure | None = None
    seconds: float = 0.0
    boots: tuple[BootStep, ...] = ()

    @property
    def waiting(self) -> BootStep | None:
        """What holds it up: a reboot that may not be done, or a person at its console."""
        return next((b for b in self.boots if b.state in {"person", "reboot-needed"}), None)


class RunSummary(Frozen):
    """One apply."""

    version: Literal[1] = 1
    id: str
    started: str = Field(description="UTC, ISO 8601")
    seconds: float
    check: bool = False
    tags: tuple[str, ...] = ()
    simulated: bool = False
    nodes: tuple[NodeRun, ...]
    checks: tuple[NodeChecks, ...] = ()
