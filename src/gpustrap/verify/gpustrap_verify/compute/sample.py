"""Real-valued data: elements of C against sums in fp64 of the same rounded inputs."""

from __future__ import annotations

import array
import operator
import random
from dataclasses import dataclass

from .matrices import NORMAL, Type, codes

ROWS, COLUMNS = 16, 64
# Of the sum of |a| x |b|: ten times what fp32 sums measure, whatever the inputs' type, see docs/verify-method.md
LIMIT = 1e-6


@dataclass(frozen=True)
class Off:
    """An element that is further from its value than rounding brings it.

    Attributes:
        row: Of C.
        column: Of C.
        got: It.
        want: The value in fp64.
        error: The difference, in parts of the sum of |a| x |b|.
    """

    row: int
    column: int
    got: float
    want: float
    error: float


class Sample:
    """Normal A and B, and elements of their product in fp64.

    Attributes:
        a: Codes of A.
        b: Codes of B.
    """

    def __init__(self, seed: int, n: int, kind: Type) -> None:
        """Draw A and B; equal seeds give equal matrices."""
        self.n = n
        self.a, self.b = codes(2 * seed, n * n), codes(2 * seed + 1, n * n)
        draw = random.Random(~seed)  # noqa: S311 - no secret
        values = [kind.rounded(value) for value in NORMAL]
        rows = {i: [values[code] for code in self.a[i * n : (i + 1) * n]] for i in draw.sample(range(n), min(n, ROWS))}
        sizes = {i: list(map(abs, row)) for i, row in rows.items()}
        self._wanted: list[tuple[int, int, float, float]] = []
        for j in draw.sample(range(n), min(n, COLUMNS)):
            column = [values[code] for code in self.b[j::n]]
            size = list(map(abs, column))
            for i, row in rows.items():
                want, scale = sum(map(operator.mul, row, column)), sum(map(operator.mul, sizes[i], size))
                self._wanted.append((i, j, want, scale))

    def verify(self, c: bytes | bytearray) -> tuple[float, list[Off]]:
        """The largest error in C, in parts of the sum of |a| x |b|, and the elements that are beyond the limit."""
        values, worst, off = array.array("f", bytes(c)), 0.0, []
        for i, j, want, scale in self._wanted:
            got = values[i * self.n + j]
            error = abs(got - want) / scale
            if not error <= LIMIT:  # NaN is not
                off.append(Off(i, j, got, want, error))
            worst = max(worst, error)
        return worst, off
