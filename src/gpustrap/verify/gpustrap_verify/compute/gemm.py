"""Products on a device, again and again: the first against the host's arithmetic, every other against the first.

C is poisoned before each product, so that a kernel that did nothing is no pass. Errors are counted, not stopped at.
"""

from __future__ import annotations

import array
import hashlib
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from .cuda import Context
from .kernels import Kernels, Report
from .matrices import INTEGERS, NORMAL, TYPES, encode
from .product import Product
from .sample import Sample

KEPT = 64  # errors that are told one by one
NAN = 0xFF  # of a byte: four make a NaN


class Multiplier(Protocol):
    """What multiplies: gpustrap's kernels or cuBLAS."""

    def multiply(self, kind: str, a: int, b: int, c: int, n: int) -> None:
        """C = A x B, row by row; C is fp32."""


@dataclass(frozen=True)
class Trial:
    """What is asked.

    Attributes:
        kind: Type of A's and B's elements.
        n: Rows and columns.
        seed: Of A and B.
        seconds: How long.
        least: Products at least, however long they take.
        most: Products at most; none for no limit.
    """

    kind: str
    n: int
    seed: int
    seconds: float
    least: int = 2
    most: int | None = None


@dataclass(frozen=True)
class Error:
    """A wrong element.

    Attributes:
        data: ``integers`` or ``normal``.
        kind: Type of A's and B's elements.
        iteration: Which product, from 0.
        row: Of C.
        column: Of C.
        got: Its bits.
        want: The right bits; in normal data, those of the first product or of the nearest fp32.
        xor: The bits that differ.
    """

    data: str
    kind: str
    iteration: int
    row: int
    column: int
    got: str
    want: str
    xor: str


@dataclass
class Outcome:
    """What came out of one trial.

    Attributes:
        data: ``integers`` or ``normal``.
        kind: Type of A's and B's elements.
        n: Rows and columns.
        seed: Of A and B.
        products: How many were made.
        wrong: How many elements were wrong, in all of them.
        more: There are more than these: the first product is wrong all over, and none was made after it.
        errors: The first of them.
        error: Normal data: the largest, in parts of the sum of |a| x |b|.
        teraflops: Median over the products, by the device's clock, without those of the first tenth.
        digest: SHA-256 of the first C: equal GPUs have equal ones.
    """

    data: str
    kind: str
    n: int
    seed: int
    products: int = 0
    wrong: int = 0
    more: bool = False
    errors: list[Error] = field(default_factory=list)
    error: float = 0.0
    teraflops: float = 0.0
    digest: str = ""

    def add(self, iteration: int, row: int, column: int, got: int, want: int) -> None:
        """Keep an error, if there are not too many yet."""
        if len(self.errors) < KEPT:
            bits = (f"{got:08x}", f"{want:08x}", f"{got ^ want:08x}")
            self.errors.append(Error(self.data, self.kind, iteration, row, column, *bits))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Bench:
    """A device, a multiplier, and gpustrap's kernels that compare."""

    def __init__(self, context: Context, kernels: Kernels, multiplier: Multiplier, step: Callable[[str], None]) -> None:
        self._context, self._kernels, self._multiplier, self._step = context, kernels, multiplier, step
        self._products: dict[tuple[int, int], Product] = {}
        self._right: dict[tuple[int, int], bytes] = {}  # once found right, a product is the same in every type

    def integers(self, trial: Trial) -> Outcome:
        """Exact products: any wrong bit is an error."""
        outcome, key = Outcome("integers", trial.kind, trial.n, trial.seed), (trial.seed, trial.n)
        if key not in self._products:
            self._products[key] = Product(trial.seed, trial.n)
        product = self._products[key]

        def judge(c: bytearray) -> bytes | None:
            if self._right.get(key, b"") == bytes(c):
                return self._right[key]
            found = product.verify(c)
            outcome.wrong += len(found.wrong)
            right = array.array("I", bytes(c))
            for one in found.wrong:
                outcome.add(0, one.row, one.column, one.got, one.want)
                right[one.row * trial.n + one.column] = one.want
            if not found.complete:
                outcome.more = True
                return None
            self._right[key] = right.tobytes()
            return self._right[key]

        self._run(trial, product.a, product.b, INTEGERS, outcome, judge)
        return outcome

    def normal(self, trial: Trial) -> Outcome:
        """Real-valued products: near enough in a sample, and the same bits every time."""
        sample = Sample(trial.seed, trial.n, TYPES[trial.kind])
        outcome = Outcome("normal", trial.kind, trial.n, trial.seed)

        def judge(c: bytearray) -> bytes | None:
            outcome.error, off = sample.verify(c)
            outcome.wrong += len(off)
            single = TYPES["fp32"]
            for one in off:
                outcome.add(0, one.row, one.column, single.bits(one.got), single.bits(one.want))
            return bytes(c)

        self._run(trial, sample.a, sample.b, NORMAL, outcome, judge)
        return outcome

    def _run(
        self,
        trial: Trial,
        a: bytes,
        b: bytes,
        table: tuple[float, ...],
        outcome: Outcome,
        judge: Callable[[bytearray], bytes | None],
    ) -> None:
        kind, n = TYPES[trial.kind], trial.n
        part, whole = n * n * kind.size, n * n * 4
        with self._context.memory(part, part, whole, whole) as (at_a, at_b, at_c, at_first):
            self._context.upload(at_a, bytes(encode(a, table, kind)))
            self._context.upload(at_b, bytes(encode(b, table, kind)))
            taken: list[float] = []

            def multiply() -> None:
                self._context.set_bytes(at_c, NAN, whole)
                with self._context.timed() as seconds:
                    self._multiplier.multiply(trial.kind, at_a, at_b, at_c, n)
                taken.extend(seconds)

            self._step(f"{outcome.data} {trial.kind} {n}, the first product")
            multiply()
            first = self._context.download(at_c, whole)
            outcome.digest = hashlib.sha256(first).hexdigest()
            outcome.products = 1
            self._step(f"{outcome.data} {trial.kind} {n}, the first product against the host's arithmetic")
            right = judge(first)
            if right is None:  # wrong all over: there is nothing to compare more products with
                return
            self._context.upload(at_first, right)
            self._step(f"{outcome.data} {trial.kind} {n}, more products")
            end = time.monotonic() + trial.seconds
            while self._more(trial, outcome.products, end):
                multiply()
                self._count(outcome, self._kernels.compare(at_c, at_first, n * n))
            outcome.teraflops = _teraflops(n, taken)

    @staticmethod
    def _more(trial: Trial, products: int, end: float) -> bool:
        if trial.most is not None and products >= trial.most:
            return False
        return products < trial.least or time.monotonic() < end

    @staticmethod
    def _count(outcome: Outcome, report: Report) -> None:
        outcome.wrong += report.count
        for place, got, want in report.records:
            outcome.add(outcome.products, place // outcome.n, place % outcome.n, got, want)
        outcome.products += 1


def _teraflops(n: int, taken: list[float]) -> float:
    """Of the median; the first products are slower, as clocks rise and libraries choose."""
    warm = taken[max(1, len(taken) // 10) :] or taken
    median = statistics.median(warm)
    return round(2 * n**3 / median / 1e12, 3) if median else 0.0
