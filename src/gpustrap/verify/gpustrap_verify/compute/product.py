"""Is C the product of A and B? Exactly, for matrices of small integers, without multiplying them.

Freivalds: with a vector r of +1 and -1, r C = (r A) B costs three passes over a matrix in place of a product, and one
wrong element of a column is always seen, as r has no zeros; what two of a column hide from one r, the second shows with
probability 1/2. What sums lose, such as a 0 that became a denormal or -0, is seen as C must be integers, bit for bit.

Rows are long integers with 32 bits for each element: adding two adds all their elements, in exact arithmetic.
"""

from __future__ import annotations

import array
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .matrices import BOUND, INTEGERS, codes

LANE = 32
ROUNDS = 2
EXAMINED = 16  # columns that are reckoned anew to tell which elements are wrong
_SIGNED = bytes(int(value) & 255 for value in INTEGERS)
_HIGH = bytes(255 if value < 0 else 0 for value in INTEGERS)


@dataclass(frozen=True)
class Wrong:
    """An element that is not what it should be.

    Attributes:
        row: Of C.
        column: Of C.
        got: Its bits.
        want: The bits of what it should be.
    """

    row: int
    column: int
    got: int
    want: int


@dataclass
class Verdict:
    """What was found in C.

    Attributes:
        by_sums: Columns whose sums are not those of a product.
        by_bits: Columns with elements that are no integers in range, or not the bits that such an integer has.
        wrong: Elements, of the first `EXAMINED` columns.
    """

    by_sums: set[int] = field(default_factory=set)
    by_bits: set[int] = field(default_factory=set)
    wrong: list[Wrong] = field(default_factory=list)

    @property
    def columns(self) -> list[int]:
        """All that are wrong."""
        return sorted(self.by_sums | self.by_bits)

    @property
    def complete(self) -> bool:
        """Every wrong element is told."""
        return len(self.columns) <= EXAMINED


class Product:
    """A x B for seeded matrices of -3 to 3, and whether a C is it."""

    def __init__(self, seed: int, n: int) -> None:
        """Draw A and B.

        Args:
            seed: Equal seeds give equal matrices.
            n: Rows and columns: at most 15,000, so that a column's sum has room in a lane.
        """
        self.n = n
        self.a, self.b = codes(2 * seed, n * n), codes(2 * seed + 1, n * n)
        self._signs = sum(1 << LANE * at + LANE - 1 for at in range(n))
        draw = random.Random(~seed)  # noqa: S311 - no secret
        self._r = [[draw.choice((-1, 1)) for _ in range(n)] for _ in range(ROUNDS)]
        self._sums = [self._through_b(self._combined(r)) for r in self._r]

    def _pack(self, lanes: bytes) -> int:
        """A row in two's complement -> the sum of element x 2^(32 column)."""
        return (int.from_bytes(lanes, "little") ^ self._signs) - self._signs

    def _unpack(self, packed: int) -> array.array[int]:
        lanes = ((packed + self._signs) ^ self._signs).to_bytes(self.n * LANE // 8, "little")
        return array.array("i", lanes)

    def _row(self, of: bytes) -> int:
        """Codes of a row or a column, packed."""
        lanes = bytearray(4 * self.n)
        lanes[0::4] = of.translate(_SIGNED)
        lanes[1::4] = lanes[2::4] = lanes[3::4] = of.translate(_HIGH)
        return self._pack(bytes(lanes))

    def _combined(self, r: Sequence[int]) -> int:
        """R A."""
        return sum(sign * self._row(self.a[i * self.n : (i + 1) * self.n]) for i, sign in enumerate(r))

    def _through_b(self, packed: int) -> int:
        """A packed row x B."""
        factors = self._unpack(packed)
        return sum(one * self._row(self.b[k * self.n : (k + 1) * self.n]) for k, one in enumerate(factors))

    def column(self, j: int) -> array.array[int]:
        """A column of A x B, exactly."""
        factors = [int(INTEGERS[code]) for code in self.b[j :: self.n]]
        return self._unpack(sum(one * self._row(self.a[k :: self.n]) for k, one in enumerate(factors) if one))

    def verify(self, c: bytes | bytearray) -> Verdict:
        """Look at C, as fp32 from a GPU's memory."""
        found, sums, size = Verdict(), [0] * ROUNDS, 4 * self.n
        for i in range(self.n):
            row, bad = self._whole(bytes(c[i * size : (i + 1) * size]))
            found.by_bits.update(bad)
            packed = self._pack(row.tobytes())
            for at, r in enumerate(self._r):
                sums[at] += packed if r[i] > 0 else -packed
        for got, want in zip(sums, self._sums):  # noqa: B905 - strict= is of Python 3.10
            if got != want:
                found.by_sums.update(j for j, lane in enumerate(self._unpack(got - want)) if lane)
        found.wrong = list(self._elements(c, found.columns[:EXAMINED]))
        return found

    def _whole(self, row: bytes) -> tuple[array.array[int], set[int]]:
        """A row of C as integers, 0 for what is none, and the columns of such."""
        values, bound = array.array("f", row), BOUND * BOUND * self.n
        try:
            whole = array.array("i", map(int, values))
            if array.array("f", whole).tobytes() == row and -bound <= min(whole) and max(whole) <= bound:
                return whole, set()
        except (ValueError, OverflowError):  # NaN, infinity, or more than 32 bits
            pass
        fits = [-bound <= one <= bound for one in values]  # NaN is in no range
        whole = array.array("i", [int(one) if fit else 0 for one, fit in zip(values, fits)])  # noqa: B905
        bits, want = array.array("I", row), array.array("I", array.array("f", whole).tobytes())
        return whole, {j for j in range(self.n) if bits[j] != want[j]}

    def _elements(self, c: bytes | bytearray, columns: Iterable[int]) -> Iterable[Wrong]:
        bits = array.array("I", bytes(c))
        for j in columns:
            wanted = array.array("I", array.array("f", self.column(j)).tobytes())
            for i in range(self.n):
                if bits[i * self.n + j] != wanted[i]:
                    yield Wrong(i, j, bits[i * self.n + j], wanted[i])
