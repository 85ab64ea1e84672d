"""Series as curves: how temperatures, clocks and speeds went while GPUs worked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpustrap.model.check import Check, Series
from gpustrap.report.figures.bars import Label, title

WIDTH, HEIGHT = 340, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 20  # room for the numbers at the axes
MOST = 240  # points drawn of a curve; more than pixels shows nothing more
COLOURS = 8
DASHES = 4
NICE = (1, 2, 2.5, 5, 10)
TICKS = 4
FLAT = 1e-9  # of its height: what varies less is rounding
SPANS = ((86400 * 2, 86400, "d"), (3600 * 2, 3600, "h"), (60 * 2, 60, "min"), (0, 1, "s"))

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Tick:
    """A number at an axis; ``at`` is where, in the picture's own units."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One series. ``colour`` and ``dash`` tell it from its neighbours, also in print."""

    label: str
    path: str
    last: str
    colour: int
    dash: int


@dataclass(frozen=True, slots=True)
class Chart:
    """Series of one name over one another; ``simulated``: by a stand-in of the lab."""

    title: str
    unit: str
    simulated: bool
    curves: tuple[Curve, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def charts(checks: Iterable[Check], label: Label) -> tuple[Chart, ...]:
    """A chart for each name and unit of each check.

    Args:
        checks: With their series.
        label: How a subject is called.
    """
    groups: dict[tuple[str, str, str], list[Series]] = {}
    simulated: dict[str, bool] = {}
    for check in checks:
        simulated[check.id] = check.simulated
        for series in check.series:
            if series.points:
                groups.setdefault((check.id, series.name, series.unit), []).append(series)
    return tuple(
        _chart(name, unit, found, label, simulated=simulated[of]) for (of, name, unit), found in groups.items()
    )


def _chart(name: str, unit: str, found: Sequence[Series], label: Label, *, simulated: bool) -> Chart:
    times = [t for one in found for t, _ in one.points]
    values = [v for one in found for _, v in one.points]
    start, end = min(times), max(times)
    end = end if end > start else start + 1
    up = nice_ticks(min(values), max(values))
    low, high = up[0], up[-1]

    def place(point: Point) -> Point:
        across = LEFT + (point[0] - start) / (end - start) * (WIDTH - LEFT - RIGHT)
        return round(across, 1), round(HEIGHT - BOTTOM - (point[1] - low) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    _, second, word = next(span for span in SPANS if end - start >= span[0])
    across = [t for t in nice_ticks(start / second, end / second) if start / second <= t <= end / second]
    return Chart(
        title(name),
        unit,
        simulated,
        tuple(
            Curve(
                label(one.subject),
                _path([place(point) for point in thinned(one.points)]),
                f"{one.points[-1][1]:.4g}",
                number % COLOURS,
                number // COLOURS % DASHES,
            )
            for number, one in enumerate(found)
        ),
        tuple(Tick(place((t * second, low))[0], f"{t:.4g} {word}") for t in across),
        tuple(Tick(place((start, v))[1], f"{v:.6g}") for v in up),
    )


def _path(points: Sequence[Point]) -> str:
    first, *rest = points
    if not rest:
        return f"M{first[0]:g} {first[1]:g}h1"
    return f"M{first[0]:g} {first[1]:g}" + "".join(f"L{x:g} {y:g}" for x, y in rest)


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most `MOST` points: of each stretch the lowest and the highest, so that no spike is lost."""
    ordered = sorted(points)
    if len(ordered) <= MOST:
        return ordered
    stretch = math.ceil(len(ordered) / (MOST // 2))
    kept: list[Point] = []
    for begin in range(0, len(ordered), stretch):
        part = ordered[begin : begin + stretch]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return kept


def nice_ticks(low: float, high: float) -> list[float]:
    """About four round numbers, the first not above ``low`` and the last not below ``high``."""
    if high - low <= max(abs(high), 1) * FLAT:  # a flat line lies in the middle
        step = max(abs(high) * 0.1, 0.1)
        low, high = low - step, high + step
    raw = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(n * power for n in NICE if n * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]
