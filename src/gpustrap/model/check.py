"""One acceptance test and what it found."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, computed_field

from gpustrap.model.base import FromNode

MOST_MEASURES = 4096  # of a check: a matrix of 16 GPUs by 16, a few times over
MOST_SERIES = 256
MOST_POINTS = 2000  # of a curve: a node thins what it samples for longer
LEAST = 1e-6  # that can be divided by: a node may expect 1e-300

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
Words = Annotated[str, Field(max_length=200)]
Unit = Annotated[str, Field(max_length=16)]


Level = Literal["quick", "standard", "burnin"]
LEVELS: tuple[Level, ...] = ("quick", "standard", "burnin")  # each has the checks of those before it


class Verdict(StrEnum):
    """Never a silent pass: a check that could not run is ``fail`` or ``skip`` with a reason."""

    PASS = "pass"  # noqa: S105 - a verdict
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


WORST_FIRST = (Verdict.FAIL, Verdict.WARN, Verdict.PASS, Verdict.SKIP)


class Measure(FromNode):
    """One number that a check measured, and what it should have been.

    Attributes:
        name: What was measured, the same on every node: ``matmul-bf16``, ``nvlink-read``.
        subject: Of what: the UUID of a GPU, a filesystem, an interface.
        peer: The other end, where it is between two; measures of ``nvlink-…`` between two GPUs are drawn as NVLink.
        kind: The subject's model, with what else its numbers rest on (a power limit that is not the card's own); those
            of equal kind are compared, in the node and over the fleet. Empty: compared with nothing.
        value: What was measured.
        unit: ``TFLOPS``, ``GB/s``, ``W``, ``°C``; empty for a count.
        better: Whether more or less of it is better; neither: it is only told.
        expected: What a healthy one has; None where no source says it. Never invented.
        source: Where ``expected`` is from.
        verdict: Of this number alone; pass where nothing is expected. A check is never better than its worst measure.
    """

    name: Name
    subject: Words = ""
    peer: Words = ""
    kind: Words = ""
    value: float
    unit: Unit = ""
    better: Literal["more", "less", "neither"] = "more"
    expected: float | None = Field(default=None, ge=0)
    source: Words = ""
    verdict: Verdict = Verdict.PASS

    @computed_field(description="value / expected; null where nothing is expected")  # type: ignore[prop-decorator]
    @property
    def ratio(self) -> float | None:
        """How much of the expected it is."""
        return round(self.value / self.expected, 4) if self.expected and self.expected > LEAST else None


class Series(FromNode):
    """How a number went while a check ran.

    Attributes:
        name: What was sampled: ``temperature``, ``clock``, ``power``, ``matmul-bf16``.
        subject: Of what, as in a measure.
        unit: Of the values.
        points: Seconds since the check began, and the value.
    """

    name: Name
    subject: Words = ""
    unit: Unit = ""
    points: tuple[tuple[float, float], ...] = Field(max_length=MOST_POINTS)


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
    measures: tuple[Measure, ...] = Field(default=(), max_length=MOST_MEASURES)
    series: tuple[Series, ...] = Field(default=(), max_length=MOST_SERIES)


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
