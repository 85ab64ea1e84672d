"""Matrices that are equal on every machine: bytes of a seeded generator, and a table of what each byte stands for.

All of it is done on whole byte strings, as a node has no numpy: a square matrix of 8192 rows takes about a second.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

BOUND = 3
# -3 to 3, each 36 or 37 of the 256 bytes: products and sums of them are exact in every type below
INTEGERS: tuple[float, ...] = tuple(float((code * 7 >> 8) - BOUND) for code in range(256))
# Quantiles of the normal distribution: their bits toggle like those of real data
NORMAL: tuple[float, ...] = tuple(NormalDist().inv_cdf((code + 0.5) / 256) for code in range(256))


@dataclass(frozen=True)
class Type:
    """A type of matrix elements.

    Attributes:
        name: As users call it.
        size: Bytes of an element.
        bits: The nearest value's bits.
        value: The value of bits.
    """

    name: str
    size: int
    bits: Callable[[float], int]
    value: Callable[[int], float]

    def rounded(self, value: float) -> float:
        """The nearest value that the type has."""
        return self.value(self.bits(value))


def _single(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def _of_single(bits: int) -> float:
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


def _cut(value: float, drop: int) -> int:
    """A single's bits with the last ones dropped, to nearest, ties to even; not for NaN and infinity."""
    bits = _single(value)
    return bits + (1 << drop - 1) - 1 + (bits >> drop & 1) >> drop << drop


def _half(value: float) -> int:
    return int.from_bytes(struct.pack("<e", value), "little")


def _of_half(bits: int) -> float:
    return float(struct.unpack("<e", bits.to_bytes(2, "little"))[0])


TYPES: dict[str, Type] = {
    "fp32": Type("fp32", 4, _single, _of_single),
    "tf32": Type("tf32", 4, lambda value: _cut(value, 13), _of_single),  # lies in memory as fp32
    "fp16": Type("fp16", 2, _half, _of_half),
    "bf16": Type("bf16", 2, lambda value: _cut(value, 16) >> 16, lambda bits: _of_single(bits << 16)),
}


def codes(seed: int, count: int) -> bytes:
    """Bytes of a generator that gives the same in every version of Python."""
    return random.Random(seed).getrandbits(8 * count).to_bytes(count, "little")  # noqa: S311 - no secret


def encode(of: bytes, table: tuple[float, ...], kind: Type) -> bytearray:
    """What the codes stand for, as it lies in a GPU's memory."""
    bits = [kind.bits(value) for value in table]
    data = bytearray(len(of) * kind.size)
    for place in range(kind.size):
        data[place :: kind.size] = of.translate(bytes(one >> 8 * place & 255 for one in bits))
    return data
