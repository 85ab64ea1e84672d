"""GPUs against their equals, in the node and over the fleet: one that is slower than those has a reason.

A comparison within nodes alone passes a node whose GPUs are all slow, and every node of one GPU. Over the fleet the
middle is what an equal GPU has, not the best: one that won the lottery of silicon would condemn all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

from gpustrap.model.check import WORST_FIRST, Check, Measure, NodeChecks, Verdict

# What rests on the GPU alone, with the share of its equals below which it fails, and is warned of. gpu-fryer fails a
# GPU at 90 %; a spread of 5 % is natural (ml-engineering). Our own kernels run for a second, on matrices too small for
# a steady speed: they only tell of a GPU that is far behind, and fail none. How fast copies to the host are is the
# slot's, and what memory is free is its users'.
LIMITS = (
    (re.compile(r"cublas-.+|gpu-memory"), 0.90, 0.95),
    (re.compile(r"matmul-.+"), 0.0, 0.75),
)
TOLD = 4  # GPUs in a reason; the measures have them all
REMEDY = "on the node: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK shows what slows it down; then {verify}"

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Equals:
    """What equal GPUs have: the best in each node, and the middle over the nodes; and by UUID where GPUs are."""

    best: Mapping[tuple[str, Key], float]
    middle: Mapping[Key, float]
    addresses: Mapping[str, Mapping[str, str]]


def compare(
    nodes: Mapping[str, NodeChecks], addresses: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> dict[str, NodeChecks]:
    """The same checks, worse where a measure is behind its equals; nothing is ever better than before.

    Args:
        nodes: By name.
        addresses: By node, the PCI addresses of GPUs by their UUIDs, where they are known: people look for those.
    """
    values: dict[Key, dict[str, list[float]]] = {}
    for name, node in nodes.items():
        for check in node.checks:
            for measure in filter(_compared, check.measures):
                values.setdefault(_key(check, measure), {}).setdefault(name, []).append(measure.value)
    equals = _Equals(
        {(name, key): _best(key, found) for key, of in values.items() for name, found in of.items()},
        {key: median(v for found in of.values() for v in found) for key, of in values.items() if len(of) > 1},
        addresses,
    )
    return {name: _node(name, node, equals) for name, node in nodes.items()}


def _compared(measure: Measure) -> bool:
    known = bool(measure.kind and _limits(measure.name))
    return known and not measure.peer and measure.better != "neither" and measure.value >= 0


def _limits(name: str) -> tuple[float, float] | None:
    return next(((fail, warn) for names, fail, warn in LIMITS if names.fullmatch(name)), None)


def _key(check: Check, measure: Measure) -> Key:
    """Of measures that should be equal."""
    return f"{check.id} {measure.name}", measure.kind, measure.unit, measure.better


def _best(key: Key, values: Iterable[float]) -> float:
    return min(values) if key[-1] == "less" else max(values)


def _node(name: str, node: NodeChecks, equals: _Equals) -> NodeChecks:
    return node.model_copy(update={"checks": tuple(_check(name, check, equals) for check in node.checks)})


def _check(name: str, check: Check, equals: _Equals) -> Check:
    judged, words = [], []
    for measure in check.measures:
        verdict, said = _judge(name, check, measure, equals) if _compared(measure) else (Verdict.PASS, "")
        judged.append(measure.model_copy(update={"verdict": _worst(measure.verdict, verdict)}))
        words += [said] * bool(said)
    if not words:
        return check
    reason = "; ".join(filter(None, [check.reason, *words[:TOLD]]))
    reason += f"; and {len(words) - TOLD} more" if len(words) > TOLD else ""
    return check.model_copy(
        update={
            "measures": tuple(judged),
            "verdict": _worst(check.verdict, *(m.verdict for m in judged)),
            "reason": reason,
            "remedy": check.remedy or REMEDY.format(verify=f"gpustrap verify {name}"),
        }
    )


def _judge(name: str, check: Check, measure: Measure, equals: _Equals) -> tuple[Verdict, str]:
    key = _key(check, measure)
    found = [(_share(measure, equals.best[name, key]), "the best of this node", equals.best[name, key])]
    if key in equals.middle:
        found.append((_share(measure, equals.middle[key]), "the middle of the fleet", equals.middle[key]))
    share, what, reference = min(found)
    fail, warn = _limits(measure.name) or (0.0, 0.0)
    if share >= warn:
        return Verdict.PASS, ""
    number = f"{measure.name} is {measure.value:.4g} {measure.unit}"
    address = equals.addresses.get(name, {}).get(measure.subject)
    behind = f"{f'GPU {address}' if address else measure.subject}: {number}, {100 * (1 - share):.0f} % behind"
    return (Verdict.FAIL if share < fail else Verdict.WARN), f"{behind} {what} ({reference:.4g})"


def _share(measure: Measure, reference: float) -> float:
    """How much it has of what an equal GPU has; 1 or more is as good."""
    own, equal = (reference, measure.value) if measure.better == "less" else (measure.value, reference)
    return own / equal if equal else 1.0


def _worst(*verdicts: Verdict) -> Verdict:
    return min(verdicts, key=WORST_FIRST.index)
