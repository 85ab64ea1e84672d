"""Numbers on a device: nested lists, the few operations that a small model needs, and their derivatives.

Every result is rounded as its type is. An operation on a GPU is a kernel there: `kernels.launch` says what it comes
to; a framework puts its ``gpu`` there, JAX that of its plugin.
"""

from __future__ import annotations

import math
import operator
import struct
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

Data = Any  # a float, or a list of Data
Derivative = Callable[[Data], Data]


class kernels:
    """What runs on GPUs."""

    launch: Callable[[int], None]
    flip: Callable[[int, Data], None]


class Place(NamedTuple):
    """Where a value lies: devices of one kind, more than one for samples that are spread."""

    kind: str  # cpu or cuda
    indices: tuple[int, ...] = (0,)


class PlaceError(Exception):
    """Two values lie in different places."""

    def __init__(self, one: Place, two: Place) -> None:
        super().__init__(f"{one} and {two}")
        self.one, self.two = one, two


class Value:
    """A number, vector, matrix or stack of them. Subclasses dress it as their framework's.

    Attributes:
        data: Nested lists of floats.
        place: Where it lies; None: nobody has said yet, and it follows what it meets.
        kind: ``float32``, ``float16`` or ``bfloat16``.
    """

    def __init__(self, data: Data, place: Place | None, kind: str = "float32") -> None:
        self.data, self.place, self.kind = rounded(data, kind), place, kind
        self.parents: list[tuple[Value, Derivative]] = []
        self.slope: Data = None


def apply(data: Data, function: Callable[..., float], *others: Data) -> Data:
    """A function of each number, and of those at the same place in the others; a single one goes with all."""
    if not isinstance(data, list):
        return function(data, *others)
    rows = [other if isinstance(other, list) else [other] * len(data) for other in others]
    return [apply(*together[:1], function, *together[1:]) for together in zip(data, *rows)]


def shape(data: Data) -> tuple[int, ...]:
    """Sizes, outermost first; none of a number."""
    return (len(data), *shape(data[0])) if isinstance(data, list) else ()


def flat(data: Data) -> list[float]:
    """All numbers in order."""
    return [number for item in data for number in flat(item)] if isinstance(data, list) else [data]


def folded(numbers: list[float], sizes: tuple[int, ...]) -> Data:
    """Numbers in order, as sizes say."""
    if not sizes:
        return numbers[0]
    step = len(numbers) // sizes[0]
    return [folded(numbers[at * step : (at + 1) * step], sizes[1:]) for at in range(sizes[0])]


def filled(number: float, sizes: tuple[int, ...]) -> Data:
    """The same number everywhere."""
    return [filled(number, sizes[1:]) for _ in range(sizes[0])] if sizes else number


def rounded(data: Data, kind: str) -> Data:
    """What a type keeps of numbers."""
    if isinstance(data, list) and data and isinstance(data[0], list):
        return [rounded(row, kind) for row in data]
    numbers = [float(number) for number in data] if isinstance(data, list) else [float(data)]
    if kind == "float16":
        kept = list(struct.unpack(f"{len(numbers)}e", struct.pack(f"{len(numbers)}e", *numbers)))
    elif kind == "bfloat16":
        bits = array("I", array("f", numbers).tobytes())
        kept = list(array("f", array("I", [(one + 0x8000) & 0xFFFF0000 for one in bits]).tobytes()))
    else:
        kept = array("f", numbers).tolist()
    return kept if isinstance(data, list) else kept[0]


def together(*values: Value) -> Place | None:
    """The one place where values lie.

    Raises:
        PlaceError: It is not one.
    """
    found: Place | None = None
    for value in values:
        if value.place is not None and found is not None and value.place != found:
            raise PlaceError(found, value.place)
        found = value.place if found is None else found
    return found


def run(values: tuple[Value, ...], data: Data, *derivatives: Derivative) -> Value:
    """The result of an operation: where its values lie, of their type, and how it follows from them."""
    place = together(*values)
    if place is not None and place.kind == "cuda":
        for index in place.indices:
            kernels.launch(index)
    result = Value(data, place, values[0].kind)
    result.parents = list(zip(values, derivatives))
    return result


def times(a: Data, b: Data) -> Data:
    """The product of two matrices."""
    columns = list(zip(*b))
    return [[math.fsum(map(operator.mul, row, column)) for column in columns] for row in a]


def _turned(a: Data) -> Data:
    return [list(row) for row in zip(*a)]


def matmul(a: Value, b: Value) -> Value:
    """Matrix product."""
    product = rounded(times(a.data, b.data), a.kind)
    place = together(a, b)
    result = run((a, b), product, lambda g: times(g, _turned(b.data)), lambda g: times(_turned(a.data), g))
    if place is not None and place.kind == "cuda":
        kernels.flip(place.indices[0], result.data)
    return result


def add_row(a: Value, row: Value) -> Value:
    """A matrix with a vector added to each row."""
    data = [[x + y for x, y in zip(line, row.data)] for line in a.data]
    return run((a, row), data, lambda g: g, lambda g: [math.fsum(column) for column in zip(*g)])


def subtract(a: Value, b: Value) -> Value:
    """Difference, number by number."""
    return run((a, b), apply(a.data, operator.sub, b.data), lambda g: g, lambda g: apply(g, operator.neg))


def add(a: Value, b: Value) -> Value:
    """Sum, number by number."""
    return run((a, b), apply(a.data, operator.add, b.data), lambda g: g, lambda g: g)


def scale(a: Value, number: float) -> Value:
    """Every number times one."""
    return run((a,), apply(a.data, lambda x: x * number), lambda g: apply(g, lambda x: x * number))


def square(a: Value) -> Value:
    """Every number times itself."""
    return run((a,), apply(a.data, lambda x: x * x), lambda g: apply(g, lambda s, x: 2 * s * x, a.data))


def mean(a: Value) -> Value:
    """The mean of all numbers."""
    numbers = flat(a.data)
    share = 1 / len(numbers)
    return run((a,), math.fsum(numbers) * share, lambda g: filled(g * share, shape(a.data)))


def convolution(images: Value, filters: Value) -> Value:
    """Images (number, channel, row, column) by filters (number, channel, row, column), without padding."""

    def at(image: Data, one: Data, y: int, x: int) -> float:
        parts = (
            map(operator.mul, image[channel][y + dy][x : x + len(line)], line)
            for channel, rows in enumerate(one)
            for dy, line in enumerate(rows)
        )
        return math.fsum(number for part in parts for number in part)

    _n, _c, height, width = shape(images.data)
    _m, _d, tall, wide = shape(filters.data)
    data = [
        [[[at(i, f, y, x) for x in range(width - wide + 1)] for y in range(height - tall + 1)] for f in filters.data]
        for i in images.data
    ]
    return run((images, filters), data)


def slopes(result: Value) -> None:
    """Put into `slope` of everything a number follows from how fast it changes with that."""
    order: list[Value] = []
    seen: set[int] = set()

    def visit(value: Value) -> None:
        if id(value) not in seen:
            seen.add(id(value))
            for parent, _derivative in value.parents:
                visit(parent)
            order.append(value)

    visit(result)
    for value in order:
        value.slope = filled(0.0, shape(value.data))
    result.slope = 1.0
    for value in reversed(order):
        for parent, derivative in value.parents:
            parent.slope = apply(parent.slope, operator.add, derivative(value.slope))
