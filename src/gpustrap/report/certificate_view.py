"""A verification as HTML and Markdown show it: data apart from drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gpustrap.model.certificate import Certificate, Change, Fleet, Gpu, Hardware
from gpustrap.model.check import WORST_FIRST, Check, Verdict
from gpustrap.report.figures.bars import Bars, Matrix, bars, matrices
from gpustrap.report.figures.curves import Chart, charts
from gpustrap.report.figures.topology import Topology, topology
from gpustrap.report.view import VERDICT_TONES, NextStep, Tone, counted, moment

WORDS = {
    Verdict.PASS: "passed",
    Verdict.WARN: "passed with warnings",
    Verdict.FAIL: "failed",
    Verdict.SKIP: "not checked",
}
CHECKS = {Verdict.PASS: "passed", Verdict.WARN: "with a warning", Verdict.FAIL: "failed", Verdict.SKIP: "left out"}
LEVELS = {"quick": "Quick checks", "standard": "Standard checks", "burnin": "Burn-in"}
GB = 1000**3


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Attributes:
        counts: How many checks ended how: ``12 passed, 1 failed``.
        gpus: ``8 x H100 SXM``.
        machine: Rows of what it is.
        cards: Its GPUs, each with a row of its own.
        wrong: The first that is wrong; empty for nothing.
    """

    certificate: Certificate
    tone: Tone
    counts: str
    gpus: str
    machine: tuple[tuple[str, str], ...]
    cards: tuple[Gpu, ...]
    picture: Topology | None
    bars: tuple[Bars, ...]
    matrices: tuple[Matrix, ...]
    charts: tuple[Chart, ...]
    wrong: str

    @property
    def name(self) -> str:
        """Inventory name."""
        return self.certificate.node


@dataclass(frozen=True, slots=True)
class FleetView:
    """All of it.

    Attributes:
        nodes: What failed first: of a thousand nodes, these are looked for.
        one: Whether it is about one node, and no fleet.
    """

    fleet: Fleet
    headline: str
    tone: Tone
    started: str
    level: str
    nodes: tuple[NodeView, ...]
    steps: tuple[NextStep, ...]
    worse: tuple[Change, ...]
    other: tuple[Change, ...]
    one: bool


def view_fleet(fleet: Fleet) -> FleetView:
    """Put together what a report shows."""
    worst_first = sorted(fleet.nodes, key=lambda node: WORST_FIRST.index(node.verdict))
    nodes = tuple(_view_node(certificate) for certificate in worst_first)
    return FleetView(
        fleet=fleet,
        headline=_headline(fleet),
        tone=VERDICT_TONES[fleet.verdict],
        started=moment(fleet.started),
        level=LEVELS[fleet.level],
        nodes=nodes,
        steps=tuple(step for certificate in worst_first for step in _steps(certificate)),
        worse=fleet.worse,
        other=tuple(change for change in fleet.changes if not change.worse),
        one=len(nodes) == 1 and not fleet.problems,
    )


def _view_node(certificate: Certificate) -> NodeView:
    machine, checks = certificate.hardware, certificate.checks
    label = certificate.called
    counted_verdicts = Counter(check.verdict for check in checks)
    return NodeView(
        certificate=certificate,
        tone=VERDICT_TONES[certificate.verdict],
        counts=", ".join(f"{counted_verdicts[v]} {CHECKS[v]}" for v in Verdict if counted_verdicts[v]),
        gpus=cards(machine) if machine else "",
        machine=tuple(_machine(machine)) if machine else (),
        cards=machine.gpus if machine else (),
        picture=topology(machine, checks) if machine else None,
        bars=bars(checks, label),
        matrices=matrices(checks, lambda subject: label(subject).removeprefix("GPU ")),
        charts=charts(checks, label),
        wrong=next((check.title for v in (Verdict.FAIL, Verdict.WARN) for check in checks if check.verdict is v), ""),
    )


def cards(machine: Hardware) -> str:
    """``8 x H100 SXM, 4 x NVSwitch``."""
    found = Counter(gpu.name for gpu in machine.gpus)
    parts = [f"{count} x {name}" for name, count in found.items()]
    parts += [f"{len(machine.switches)} x NVSwitch"] * bool(machine.switches)
    return ", ".join(parts) or "no GPU"


def _machine(machine: Hardware) -> Iterator[tuple[str, str]]:
    place = {"none": "", "unknown": ""}.get(machine.virtualization, f", in {machine.virtualization}")
    yield "System", f"{machine.os}{place}"
    secure = {True: "on", False: "off", None: "not known"}[machine.secure_boot]
    yield "Kernel", f"{machine.kernel}, Secure Boot {secure}"
    yield "Processor", f"{machine.cpu or 'not known'}, {counted(machine.threads, 'thread')}"
    yield "Memory", f"{machine.memory / GB:.0f} GB"
    yield "Driver", f"{machine.driver} ({machine.flavour} module)" if machine.driver else "none is loaded"
    yield "GPUs", cards(machine)


def _headline(fleet: Fleet) -> str:
    counts = Counter(node.verdict for node in fleet.nodes)
    if len(fleet.nodes) == 1 and not fleet.problems:
        return f"{fleet.nodes[0].node} {WORDS[fleet.verdict]}"
    parts = [f"{counts[v]} {WORDS[v]}" for v in Verdict if counts[v]]
    without = len({problem.subject for problem in fleet.problems})
    parts += [f"{without} could not be checked"] * bool(without)
    return f"{counted(len(fleet.nodes) + without, 'node')}: {', '.join(parts) or 'nothing was checked'}"


def _steps(certificate: Certificate) -> Iterator[NextStep]:
    """Each once, with all that it is for."""
    found: dict[str, list[str]] = {}
    for check in sorted(certificate.checks, key=_failed_first):
        if check.verdict in {Verdict.FAIL, Verdict.WARN}:
            found.setdefault(check.remedy or f"gpustrap verify {certificate.node}", []).append(check.title)
    return (NextStep(certificate.node, "; ".join(titles), step) for step, titles in found.items())


def _failed_first(check: Check) -> bool:
    return check.verdict is not Verdict.FAIL
