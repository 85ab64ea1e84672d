"""gpustrap's own kernels: their entries, and the report that some of them fill (see kernels/README.md)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from ctypes import c_uint32, c_uint64
from dataclasses import dataclass

from .cuda import Context

MULTIPLE = 64  # matrices have a multiple of so many rows
REPORT_BYTES = 8 + 64 * 16
GEMM = {"fp32": "gpustrap_gemm_f32", "fp16": "gpustrap_gemm_f16"}
_NAMES = (*GEMM.values(), "gpustrap_fill", "gpustrap_check", "gpustrap_compare")
_BLOCKS = (4096, 1)
_RECORD = struct.Struct("<QII")


@dataclass(frozen=True)
class Report:
    """Words that differ.

    Attributes:
        count: How many.
        records: Place in words, what is there, and what should be; of 64 at most.
    """

    count: int
    records: tuple[tuple[int, int, int], ...]


class Kernels:
    """The kernels, loaded into a device."""

    def __init__(self, context: Context, modules: Mapping[str, str], report: int) -> None:
        """Compile them for the device.

        Args:
            context: The device.
            modules: PTX by the compute capability that it needs.
            report: Address of `REPORT_BYTES` on the device.
        """
        context.load(modules, _NAMES)
        self._context, self._report = context, report

    def multiply(self, kind: str, a: int, b: int, c: int, n: int) -> None:
        """C = A x B."""
        blocks = n // MULTIPLE
        self._context.launch(GEMM[kind], (blocks, blocks), c_uint64(a), c_uint64(b), c_uint64(c), c_uint32(n))

    def fill(self, out: int, words: int, first: int, seed: int, flip: int = 0) -> None:
        """Write the pattern of a seed, the words of which are numbered from ``first``."""
        place = (c_uint64(out), c_uint64(words), c_uint64(first), c_uint32(seed), c_uint32(flip))
        self._context.launch("gpustrap_fill", _BLOCKS, *place)

    def check(self, at: int, words: int, first: int, seed: int, flip: int = 0) -> Report:
        """Compare with what `fill` wrote."""
        place = (c_uint64(at), c_uint64(words), c_uint64(first), c_uint32(seed), c_uint32(flip))
        return self._reported("gpustrap_check", *place)

    def compare(self, got: int, want: int, words: int) -> Report:
        """Compare two pieces of memory, bit for bit."""
        return self._reported("gpustrap_compare", c_uint64(got), c_uint64(want), c_uint64(words))

    def _reported(self, name: str, *values: c_uint32 | c_uint64) -> Report:
        self._context.set_bytes(self._report, 0, REPORT_BYTES)
        self._context.launch(name, _BLOCKS, *values, c_uint64(self._report))
        data = bytes(self._context.download(self._report, REPORT_BYTES))
        count = int.from_bytes(data[:8], "little")
        return Report(count, tuple(_RECORD.unpack_from(data, 8 + 16 * at) for at in range(min(count, 64))))


def pattern(index: int, seed: int) -> int:
    """What `Kernels.fill` writes at a place."""
    x = (index & 0xFFFFFFFF) ^ ((index >> 32) * 0x9E3779B1 & 0xFFFFFFFF) ^ seed
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ x >> 16
