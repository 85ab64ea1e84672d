"""Copies between host and device, within a device, and between devices: how fast, and whether the data is the same."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from ctypes import addressof, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from typing import Any

from .cuda import Context
from .kernels import Kernels, pattern

SEED = 0x5EED
SAMPLED = 4096  # words that the host looks at itself


@dataclass(frozen=True)
class Rates:
    """Of one device, in GB/s (1e9 bytes), each the median of its copies.

    Attributes:
        to_device: From pinned memory of the host.
        from_device: To it.
        within: Bytes read and bytes written, together.
        wrong: Words that were not the same after a copy.
    """

    to_device: float
    from_device: float
    within: float
    wrong: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Pair:
    """Copies from one device to another.

    Attributes:
        source: UUID.
        target: UUID.
        direct: Without the host; else the driver goes through its memory.
        rate: GB/s.
        wrong: Words that were not the same.
    """

    source: str
    target: str
    direct: bool
    rate: float
    wrong: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def rates(context: Context, kernels: Kernels, size: int, seconds: float, step: Callable[[str], None]) -> Rates:
    """Measure one device.

    Args:
        context: The device.
        kernels: Loaded into it.
        size: Bytes of a copy; a multiple of 4.
        seconds: For each of the three directions.
        step: Told what is done.
    """
    call, count = context.cuda.call, c_size_t(size)
    with context.memory(size, size) as (one, other), context.pinned(size) as host:
        at_host = c_void_p(addressof(host))

        def to_device() -> None:
            call("cuMemcpyHtoDAsync_v2", c_uint64(other), at_host, count, None)

        def from_device() -> None:
            call("cuMemcpyDtoHAsync_v2", at_host, c_uint64(one), count, None)

        def within() -> None:
            call("cuMemcpyDtoDAsync_v2", c_uint64(other), c_uint64(one), count, None)

        words = size // 4
        kernels.fill(one, words, 0, SEED)
        step("copies to the host")
        down = _rate(context, from_device, size, seconds)
        wrong = _differ(host, words)
        step("copies to the device")
        context.set_bytes(other, 0, size)
        up = _rate(context, to_device, size, seconds)
        wrong += kernels.check(other, words, 0, SEED).count
        step("copies within the device")
        context.set_bytes(other, 0, size)
        inside = _rate(context, within, 2 * size, seconds)
        wrong += kernels.check(other, words, 0, SEED).count
    return Rates(up, down, inside, wrong)


def _differ(host: Any, words: int) -> int:  # noqa: ANN401 - a ctypes array of any length
    """Of some words spread over the buffer, how many are wrong; the device looks at all of them when they are back."""
    places = range(0, words, max(1, words // SAMPLED))
    return sum(int.from_bytes(host[4 * at : 4 * at + 4], "little") != pattern(at, SEED) for at in places)


def _rate(context: Context, copy: Callable[[], None], size: int, seconds: float) -> float:
    copy()  # the first is slower: pages are mapped, clocks rise
    context.wait()
    taken: list[float] = []
    end = time.monotonic() + seconds
    while len(taken) < 3 or time.monotonic() < end:
        with context.timed() as one:
            copy()
        taken.extend(one)
    median = statistics.median(taken)
    return round(size / median / 1e9, 2) if median else 0.0


def pair(source: Context, target: Context, kernels: tuple[Kernels, Kernels], size: int, seconds: float) -> Pair:
    """Copy from one device to another.

    Args:
        source: A device.
        target: Another.
        kernels: Loaded into each.
        size: Bytes of a copy; a multiple of 4.
        seconds: How long to repeat it.
    """
    direct = source.cuda.can_access(source.device, target.device)
    with _access(source, target, direct=direct), target.memory(size) as (there,):
        target.set_bytes(there, 0, size)
        target.wait()
        source.enter()
        with source.memory(size) as (here,):
            kernels[0].fill(here, size // 4, 0, SEED)

            def copy() -> None:
                places = (c_uint64(there), target.handle, c_uint64(here), source.handle)
                source.cuda.call("cuMemcpyPeerAsync", *places, c_size_t(size), None)

            rate = _rate(source, copy, size, seconds)
        target.enter()
        wrong = kernels[1].check(there, size // 4, 0, SEED).count
    return Pair(source.device.uuid, target.device.uuid, direct, rate, wrong)


@contextlib.contextmanager
def _access(source: Context, target: Context, *, direct: bool) -> Iterator[None]:
    """The source's kernels and copies may use the target's memory; given back, as a GPU takes eight such at most."""
    if direct:
        source.enter()
        source.cuda.call("cuCtxEnablePeerAccess", target.handle, c_uint(0))
    target.enter()
    yield
    if direct:
        source.enter()
        source.cuda.call("cuCtxDisablePeerAccess", target.handle)
