"""Measures as bars, each beside what is expected; and those between two as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpustrap.model.check import WORST_FIRST, Check, Measure, Verdict

Label = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Bar:
    """One measure. Lengths are per cent of the whole width.

    Attributes:
        label: Of what.
        value: With its unit.
        note: How it compares with what is expected.
        length: Of the bar.
        expected: Where the mark of what is expected stands; None where nothing is.
    """

    label: str
    value: str
    note: str
    length: float
    expected: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Bars:
    """Measures of one name, on one scale.

    Attributes:
        simulated: They rest on a stand-in of the lab.
        expected: What is expected of all of them, and by what source; empty where that differs, or is not known.
    """

    title: str
    simulated: bool
    expected: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One measure between two; empty text where there is none."""

    text: str = ""
    verdict: Verdict = Verdict.PASS


@dataclass(frozen=True, slots=True)
class Matrix:
    """Measures of one unit from each (rows) to each (columns); ``simulated``: by a stand-in of the lab."""

    title: str
    simulated: bool
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def bars(checks: Iterable[Check], label: Label) -> tuple[Bars, ...]:
    """Every measure that is of one thing, those of a name together.

    Args:
        checks: With their measures.
        label: How a subject is called.
    """
    groups: dict[tuple[str, str, str], list[Measure]] = {}
    simulated: dict[str, bool] = {}
    for check in checks:
        simulated[check.id] = check.simulated
        for measure in check.measures:
            if not measure.peer:
                groups.setdefault((check.id, measure.name, measure.unit), []).append(measure)
    return tuple(_bars(name, found, label, simulated=simulated[of]) for (of, name, _), found in groups.items())


def _bars(name: str, found: list[Measure], label: Label, *, simulated: bool) -> Bars:
    most = max(max(abs(m.value), m.expected or 0) for m in found) or 1
    expected = {_expected(m) for m in found}
    common = expected.pop() if len(expected) == 1 else ""
    return Bars(
        title(name),
        simulated,
        common,
        tuple(
            Bar(
                label=label(m.subject),
                value=with_unit(m.value, m.unit),
                note=_note(m, "" if common else _expected(m)),
                length=round(100 * abs(m.value) / most, 1),
                expected=round(100 * m.expected / most, 1) if m.expected else None,
                verdict=m.verdict,
            )
            for m in found
        ),
    )


def _expected(measure: Measure) -> str:
    if measure.ratio is None:
        return ""
    said = with_unit(measure.expected or 0, measure.unit)
    return f"{said} ({measure.source})" if measure.source else said


def _note(measure: Measure, expected: str) -> str:
    share = "" if measure.ratio is None else f"{100 * measure.ratio:.0f} %"
    return f"{share} of {expected}" if expected else share


def matrices(checks: Iterable[Check], label: Label) -> tuple[Matrix, ...]:
    """Every measure between two, as a table for each check and unit.

    Args:
        checks: With their measures.
        label: How a subject is called.
    """
    groups: dict[tuple[str, str], dict[tuple[str, str], Measure]] = {}
    by_id: dict[str, Check] = {}
    for check in checks:
        by_id[check.id] = check
        for measure in check.measures:
            if measure.peer:
                pairs = groups.setdefault((check.id, measure.unit), {})
                pairs[measure.subject, measure.peer] = _worse(pairs.get((measure.subject, measure.peer)), measure)
    return tuple(_matrix(by_id[of], unit, pairs, label) for (of, unit), pairs in groups.items())


def _worse(one: Measure | None, other: Measure) -> Measure:
    """Of two measures of one pair, the one that is told."""
    both = (other,) if one is None else (one, other)
    return min(both, key=lambda m: (WORST_FIRST.index(m.verdict), m.value))


def _matrix(check: Check, unit: str, pairs: dict[tuple[str, str], Measure], label: Label) -> Matrix:
    ends = list(dict.fromkeys([*(a for a, _ in pairs), *(b for _, b in pairs)]))
    rows = []
    for start in ends:
        found = [pairs.get((start, end)) for end in ends]
        rows.append((label(start), tuple(Cell(f"{m.value:.3g}", m.verdict) if m else Cell() for m in found)))
    return Matrix(f"{check.title}, {unit}", check.simulated, tuple(label(end) for end in ends), tuple(rows))


def title(name: str) -> str:
    """``matmul-fp16`` -> ``matmul fp16``."""
    return name.replace("-", " ")


def with_unit(value: float, unit: str) -> str:
    """Four digits are more than any measure is good for."""
    return f"{value:.4g} {unit}".strip()
