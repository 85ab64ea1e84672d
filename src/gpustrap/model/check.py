"""One acceptance test and what it found."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from gpustrap.model.base import FromNode


class Verdict(StrEnum):
    """Never a silent pass: a check that could not run is ``fail`` or ``skip`` with a reason."""

    PASS = "pass"  # noqa: S105 - a verdict
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class Check(FromNode):
    """One check of one node."""

    id: str = Field(description="stable kebab-case name: docker-runs-a-container")
    title: str
    verdict: Verdict
    reason: str = Field(default="", description="why this verdict; required for all but pass")
    evidence: str = Field(default="", description="the tool's own words, shortened")
    remedy: str = ""
    seconds: float = Field(default=0.0, ge=0)
    simulated: bool = False
    data: dict[str, Any] = Field(default_factory=dict)


class NodeChecks(FromNode):
    """All checks of one node."""

    node: str
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict; a node without any check that ran has failed."""
        found = {c.verdict for c in self.checks}
        if Verdict.FAIL in found or not found - {Verdict.SKIP}:
            return Verdict.FAIL
        return Verdict.WARN if Verdict.WARN in found else Verdict.PASS
