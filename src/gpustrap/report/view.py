"""One run as every kind of report shows it: data apart from drawing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gpustrap.model.check import Check, NodeChecks, Verdict
from gpustrap.model.lock import Choice, Lock
from gpustrap.model.run import NodeRun, Outcome, RunSummary
from gpustrap.report.pending_text import not_installed

Tone = Literal["good", "warn", "bad", "idle"]

VERDICT_TONES: dict[Verdict, Tone] = {
    Verdict.PASS: "good",
    Verdict.WARN: "warn",
    Verdict.FAIL: "bad",
    Verdict.SKIP: "idle",
}
OUTCOME_TONES: dict[Outcome, Tone] = {
    Outcome.CHANGED: "good",
    Outcome.UNCHANGED: "good",
    Outcome.WOULD_CHANGE: "warn",
    Outcome.FAILED: "bad",
    Outcome.UNREACHABLE: "bad",
    Outcome.UNKNOWN: "bad",
    Outcome.NOT_RUN: "idle",
}
OUTCOME_WORDS: dict[Outcome, str] = {
    Outcome.CHANGED: "changed",
    Outcome.UNCHANGED: "nothing to change",
    Outcome.WOULD_CHANGE: "would change",
    Outcome.FAILED: "failed",
    Outcome.UNREACHABLE: "unreachable",
    Outcome.UNKNOWN: "state unknown",
    Outcome.NOT_RUN: "not run",
}
BOOT_WORDS = {
    "rebooted": "rebooted",
    "reboot-needed": "needs a reboot",
    "person": "waits for a person",
    "next-boot": "next boot without a driver",
}
BOOT_STEPS = {"reboot-needed", "person", "next-boot"}  # where a person has something to do
OUTCOME_STEPS: dict[Outcome, str] = {
    Outcome.FAILED: "gpustrap apply {node}",
    Outcome.UNREACHABLE: "gpustrap inspect {node}",
    Outcome.UNKNOWN: "gpustrap apply {node}",
    Outcome.NOT_RUN: "gpustrap apply {node}",
}


@dataclass(frozen=True, slots=True)
class NextStep:
    """Something for a person to do."""

    node: str
    what: str
    step: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of the run."""

    run: NodeRun
    outcome: str
    tone: Tone
    os: str
    choices: tuple[Choice, ...]
    checks: tuple[Check, ...]
    verdict: Verdict | None

    @property
    def name(self) -> str:
        """Inventory name."""
        return self.run.node

    @property
    def has_choices(self) -> bool:
        """Whether the node has what the lock gives it; else that is still to come."""
        return self.run.outcome in {Outcome.CHANGED, Outcome.UNCHANGED}

    @property
    def verdict_tone(self) -> Tone:
        """The tone of the verdict; idle when the node was not verified."""
        return VERDICT_TONES[self.verdict] if self.verdict else "idle"

    @property
    def simulated(self) -> bool:
        """Whether anything of this node rests on a stand-in."""
        return any(c.simulated for c in self.choices) or any(c.simulated for c in self.checks)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run.

    Attributes:
        pending: What is locked for its nodes, but not installed by this gpustrap; empty where nothing is.
    """

    summary: RunSummary
    headline: str
    tone: Tone
    started: str
    nodes: tuple[NodeView, ...]
    steps: tuple[NextStep, ...]
    tool: str
    pending: str

    @property
    def asked(self) -> str:
        """What was asked, in words."""
        what = "Check what an apply would change on" if self.summary.check else "Apply the lock to"
        tags = f", only {', '.join(self.summary.tags)}" if self.summary.tags else ""
        return f"{what} {counted(len(self.nodes), 'node')}{tags}"

    @property
    def simulated(self) -> bool:
        """Whether anything rests on a stand-in."""
        return self.summary.simulated or any(n.simulated for n in self.nodes)


def view_run(summary: RunSummary, lock: Lock | None) -> RunView:
    """Put together what a report shows.

    Args:
        summary: The run.
        lock: The lock it used; None when there is none any more.
    """
    checks = {c.node: c for c in summary.checks}
    nodes = tuple(_view_node(run, lock, checks.get(run.node)) for run in summary.nodes)
    return RunView(
        summary=summary,
        headline=_headline(nodes),
        tone=_worst([n.tone for n in nodes] + [n.verdict_tone for n in nodes if n.verdict]),
        started=moment(summary.started),
        nodes=nodes,
        steps=tuple(step for node in nodes for step in _steps(node)),
        tool=lock.tool if lock else "",
        pending=not_installed({n.name: lock.nodes[n.name] for n in nodes if n.name in lock.nodes}) if lock else "",
    )


def _view_node(run: NodeRun, lock: Lock | None, checks: NodeChecks | None) -> NodeView:
    entry = lock.nodes.get(run.node) if lock else None
    return NodeView(
        run=run,
        outcome=", ".join([OUTCOME_WORDS[run.outcome], *_boot_words(run)]),
        tone=_tone(run),
        os=entry.os if entry else "",
        choices=tuple(c for c in entry.choices if not c.pending) if entry else (),
        checks=checks.checks if checks else (),
        verdict=checks.verdict if checks else None,
    )


def _tone(run: NodeRun) -> Tone:
    open_ends = any(b.state in BOOT_STEPS for b in run.boots)
    return _worst([OUTCOME_TONES[run.outcome], "warn" if open_ends else "idle"])


def _boot_words(run: NodeRun) -> list[str]:
    return [BOOT_WORDS[b.state] for b in run.boots if b.state in BOOT_WORDS]


def _headline(nodes: tuple[NodeView, ...]) -> str:
    counts = Counter(n.run.outcome for n in nodes)
    parts = [f"{counts[o]} {OUTCOME_WORDS[o]}" for o in Outcome if counts[o]]
    boots = Counter(word for n in nodes for word in _boot_words(n.run))
    parts += [f"{boots[word]} {word}" for word in BOOT_WORDS.values() if boots[word]]
    verdicts = Counter(n.verdict for n in nodes if n.verdict)
    words = {Verdict.PASS: "verified", Verdict.WARN: "verified with warnings", Verdict.FAIL: "failed verification"}
    proved = [f"{verdicts[v]} {word}" for v, word in words.items() if verdicts[v]]
    return f"{counted(len(nodes), 'node')}: " + "; ".join(", ".join(p) for p in (parts, proved) if p)


def _worst(tones: list[Tone]) -> Tone:
    order: tuple[Tone, ...] = ("bad", "warn", "good", "idle")
    return min(tones, key=order.index, default="idle")


def _steps(node: NodeView) -> list[NextStep]:
    steps = []
    if node.run.outcome in OUTCOME_STEPS:
        failure = node.run.failure
        what = f"{failure.role}: {failure.task}" if failure else node.outcome
        hint = failure.hint if failure and failure.hint else OUTCOME_STEPS[node.run.outcome].format(node=node.name)
        steps.append(NextStep(node.name, what, hint))
    steps += [NextStep(node.name, b.reason, b.remedy) for b in node.run.boots if b.state in BOOT_STEPS]
    steps += [
        NextStep(node.name, check.title, check.remedy or f"gpustrap verify {node.name}")
        for check in node.checks
        if check.verdict in {Verdict.FAIL, Verdict.WARN}
    ]
    return steps


def moment(iso: str) -> str:
    """A time for people; what is no time as it is."""
    try:
        return datetime.fromisoformat(iso).strftime("%-d %B %Y, %H:%M UTC")
    except ValueError:
        return iso


def duration(seconds: float) -> str:
    """Seconds in words: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``8 h 02 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def counted(number: int, word: str, words: str = "") -> str:
    """``1 node``, ``2 nodes``; another plural than with s is given."""
    return f"{number} {word}" if number == 1 else f"{number} {words or word + 's'}"
