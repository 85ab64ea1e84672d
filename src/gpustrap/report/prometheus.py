r"""A verification as a text file for the textfile collector of Prometheus' node exporter.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (labels escape ``\``, ``"`` and the line's end).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from gpustrap.model.certificate import Certificate, Fleet
from gpustrap.model.check import Verdict
from gpustrap.report.escape import one_line

VERDICTS = {Verdict.PASS: 0, Verdict.WARN: 1, Verdict.FAIL: 2, Verdict.SKIP: 3}
LEGEND = "0 pass, 1 warn, 2 fail, 3 skip"

Labels = dict[str, str]
Sample = tuple[Labels, float]


def render(fleet: Fleet) -> str:
    """The file. Nodes that could not be checked have ``gpustrap_node_verified`` 0 and nothing else."""
    families = (
        (
            "gpustrap_node_verified",
            "Whether the node could be verified, and no check failed.",
            [*_verified(fleet.nodes), *(({"node": _node(p.subject)}, 0.0) for p in fleet.problems)],
        ),
        ("gpustrap_node_verdict", f"Verdict of the node: {LEGEND}.", _verdicts(fleet.nodes)),
        ("gpustrap_node_verify_timestamp_seconds", "When the verification began.", _times(fleet.nodes)),
        ("gpustrap_check_verdict", f"Verdict of the check: {LEGEND}.", _checks(fleet.nodes)),
        ("gpustrap_check_duration_seconds", "How long the check took.", _durations(fleet.nodes)),
        ("gpustrap_measure", "What a check measured, in the unit that the label says.", _measures(fleet.nodes)),
        ("gpustrap_measure_ratio", "What was measured by what is expected.", _ratios(fleet.nodes)),
    )
    return "".join(_family(name, words, samples) for name, words, samples in families)


def _family(name: str, words: str, samples: Iterable[Sample]) -> str:
    values: dict[str, float] = {}
    for labels, value in samples:  # one that is there twice would make the whole file unreadable
        values.setdefault(_labels(labels), value)
    lines = (f"{name}{{{labels}}} {value:.10g}" for labels, value in values.items())
    return "\n".join((f"# HELP {name} {words}", f"# TYPE {name} gauge", *lines, "")) if values else ""


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')


def _node(subject: str) -> str:
    return subject.removeprefix("node ")


def _verified(nodes: Iterable[Certificate]) -> Iterator[Sample]:
    for node in nodes:
        yield {"node": node.node}, float(node.verdict in {Verdict.PASS, Verdict.WARN})


def _verdicts(nodes: Iterable[Certificate]) -> Iterator[Sample]:
    for node in nodes:
        yield {"node": node.node, "level": node.level, "simulated": str(node.simulated).lower()}, VERDICTS[node.verdict]


def _times(nodes: Iterable[Certificate]) -> Iterator[Sample]:
    for node in nodes:
        yield {"node": node.node}, datetime.fromisoformat(node.started).timestamp()


def _checks(nodes: Iterable[Certificate]) -> Iterator[Sample]:
    for node in nodes:
        for check in node.checks:
            labels = {"node": node.node, "check": check.id, "simulated": str(check.simulated).lower()}
            yield labels, float(VERDICTS[check.verdict])


def _durations(nodes: Iterable[Certificate]) -> Iterator[Sample]:
    for node in nodes:
        yield from (({"node": node.node, "check": c.id}, c.seconds) for c in node.checks)


def _measures(nodes: Iterable[Certificate]) -> Iterator[Sample]:
    for node in nodes:
        for check in node.checks:
            for m in check.measures:
                ends = {"subject": m.subject, "peer": m.peer}
                yield {"node": node.node, "check": check.id, "measure": m.name, **ends, "unit": m.unit}, m.value


def _ratios(nodes: Iterable[Certificate]) -> Iterator[Sample]:
    for node in nodes:
        for check in node.checks:
            for m in check.measures:
                if m.ratio is not None:
                    ends = {"subject": m.subject, "peer": m.peer}
                    yield {"node": node.node, "check": check.id, "measure": m.name, **ends}, m.ratio
