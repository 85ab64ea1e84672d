"""``python tests/bench/detection.py``: how many single flipped bits of a product each way of checking misses.

Writes the table of docs/verify-method.md. Bits of right results are flipped at random places; a way misses a flip when
it calls the result right. Sums and ours are of products of integers, the others of normal numbers, as they have it.
"""

from __future__ import annotations

import array
import math
import operator
import random
import struct
import sys
from collections.abc import Callable

from gpustrap.verify.gpustrap_verify.compute.matrices import NORMAL, TYPES, codes
from gpustrap.verify.gpustrap_verify.compute.product import Product

# got, want -> whether it is called right. Reads as their sources do: NaN compares false.
PEERS: dict[str, Callable[[float, float], bool]] = {
    "PyTorch's default tolerance for fp32 (1.3e-6 relative, 1e-5 absolute)": lambda got, want: (
        got == want or abs(got - want) <= 1e-5 + 1.3e-6 * abs(want) < math.inf
    ),
    "gpu-burn (1e-3 absolute)": lambda got, want: not abs(got - want) > 1e-3,
    "DCGM's diagnostic (the same, and NaN counts)": lambda got, want: abs(got - want) <= 1e-3,
}
OURS = "gpustrap: sums and bits"
SUMS = "sums alone, in fp64 (Freivalds)"


def table(n: int, flips: int, seed: int) -> dict[str, int]:
    """How many flips each way calls right.

    Args:
        n: Rows of the matrices.
        flips: How many bits, one at a time.
        seed: Of matrices and places.
    """
    draw = random.Random(seed)
    missed = {OURS: 0, SUMS: 0, **dict.fromkeys(PEERS, 0)}
    product = Product(seed, n)
    right = array.array("I", b"".join(_row(product, i) for i in range(n)))
    for start in range(0, flips, n):
        _integers(product, right, min(n, flips - start), draw, missed)
    for got, want in _normal(n, flips, seed, draw):
        for way, takes in PEERS.items():
            missed[way] += takes(got, want)
    return missed


def _row(product: Product, i: int) -> bytes:
    """A row of the right C."""
    n = product.n
    packed = product._through_b(product._row(product.a[i * n : (i + 1) * n]))
    return array.array("f", product._unpack(packed)).tobytes()


def _integers(product: Product, right: array.array, flips: int, draw: random.Random, missed: dict[str, int]) -> None:
    """One flip in each of so many columns: a column is judged by itself."""
    n, words, value = product.n, right[:], TYPES["fp32"].value
    sums = [product._unpack(packed) for packed in product._sums]
    columns = draw.sample(range(n), flips)
    for j in columns:
        i = draw.randrange(n)
        place, want = i * n + j, value(words[i * n + j])
        words[place] ^= 1 << draw.randrange(32)
        signs = [r[i] for r in product._r]
        flipped = [(one[j] - sign * want) + sign * value(words[place]) for one, sign in zip(sums, signs, strict=True)]
        missed[SUMS] += flipped == [one[j] for one in sums]
    missed[OURS] += len(set(columns) - set(product.verify(words.tobytes()).columns))


def _normal(n: int, flips: int, seed: int, draw: random.Random) -> list[tuple[float, float]]:
    """Elements of a product of normal matrices in fp32, with a bit flipped, and as they were."""
    a, b = ([NORMAL[code] for code in codes(part, n * n)] for part in (2 * seed, 2 * seed + 1))
    columns = [b[j::n] for j in range(n)]
    pairs = []
    for _ in range(flips):
        i, j = draw.randrange(n), draw.randrange(n)
        bits = TYPES["fp32"].bits(sum(map(operator.mul, a[i * n : (i + 1) * n], columns[j])))
        got, want = (
            struct.unpack("<f", one.to_bytes(4, "little"))[0] for one in (bits ^ 1 << draw.randrange(32), bits)
        )
        pairs.append((got, want))
    return pairs


def main() -> None:
    """Print the table as Markdown."""
    flips = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    print(f"| way of checking | missed of {flips:,} |\n|---|---|")
    for way, missed in table(1024, flips, 1).items():
        print(f"| {way} | {missed:,} |")


if __name__ == "__main__":
    main()
