"""Most of a device's memory: written whole, then read whole, so that cells that answer for others are seen too."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from .cuda import Context, CudaError
from .kernels import Kernels

CHUNK = 1 << 30
LEAST = 1 << 20
SPARE = 256 << 20  # for the driver, and whatever starts meanwhile
FLIPS = (0, 0xFFFFFFFF)  # the same pattern twice, so that each bit is once 0 and once 1
KEPT = 64


@dataclass
class Memory:
    """What came out.

    Attributes:
        bytes: How much was tried.
        free: How much nobody had before.
        whole: How much the device has.
        wrong: How many words of 32 bits, over all patterns.
        errors: The first of them: the byte within what was tried, got, want, xor.
        seconds: For all of it.
    """

    bytes: int = 0
    free: int = 0
    whole: int = 0
    wrong: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def memory_test(
    context: Context, kernels: Kernels, seed: int, step: Callable[[str], None], most: int | None = None
) -> Memory:
    """Write patterns to all memory that is free, but for a little, and read them.

    Args:
        context: The device.
        kernels: Loaded into it.
        seed: Of the pattern.
        step: Told what is done.
        most: Bytes at most; none for all.
    """
    start = time.monotonic()
    result = Memory(free=context.free(), whole=context.device.memory)
    wanted = max(0, result.free - SPARE) if most is None else most
    with ExitStack() as stack:
        chunks = _chunks(context, stack, wanted)
        result.bytes = sum(size for _, size in chunks)
        for flip in FLIPS:
            step(f"memory, {result.bytes >> 20} MiB, pattern {seed} {'inverted' if flip else 'as it is'}")
            _try(chunks, kernels, seed, flip, result)
    result.seconds = round(time.monotonic() - start, 3)
    return result


def _chunks(context: Context, stack: ExitStack, wanted: int) -> list[tuple[int, int]]:
    """Address and size of each piece; smaller ones where no large one is left."""
    chunks, size, left = [], CHUNK, wanted
    while left >= LEAST and size >= LEAST:
        take = min(size, left // LEAST * LEAST)
        try:
            chunks.append((stack.enter_context(context.memory(take))[0], take))
            left -= take
        except CudaError as error:
            if error.code != 2:  # CUDA_ERROR_OUT_OF_MEMORY
                raise
            size //= 2
    return chunks


def _try(chunks: list[tuple[int, int]], kernels: Kernels, seed: int, flip: int, result: Memory) -> None:
    first = 0
    for address, size in chunks:
        kernels.fill(address, size // 4, first, seed, flip)
        first += size // 4
    first = 0
    for address, size in chunks:
        report = kernels.check(address, size // 4, first, seed, flip)
        result.wrong += report.count
        for place, got, want in report.records[: KEPT - len(result.errors)]:
            bits = {"got": f"{got:08x}", "want": f"{want:08x}", "xor": f"{got ^ want:08x}"}
            result.errors.append({"byte": 4 * (first + place), **bits})
        first += size // 4
