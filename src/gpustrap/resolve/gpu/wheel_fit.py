"""Which builds of a framework a node's GPUs, driver and machine architecture allow."""

from __future__ import annotations

from dataclasses import dataclass

from gpustrap.catalog.schema_stack import Wheel
from gpustrap.resolve.gpu.boards import NodeGpu, capability, counted
from gpustrap.resolve.gpu.cuda_fit import driver_for, is_compatible, is_native
from gpustrap.resolve.gpu.packages import numbers
from gpustrap.resolve.gpu.stack import Stack


@dataclass(frozen=True, slots=True)
class Fit:
    """A build against a node.

    Attributes:
        native: The driver knows all of its CUDA version.
        lacking: GPUs that it has no code for.
        translated: GPUs that it has only PTX for, of which the driver makes code.
        driver: The branch it needs, where the node's is older.
        against: Why it cannot be, as the end of a sentence; empty where it can.
    """

    row: Wheel
    native: bool
    lacking: tuple[NodeGpu, ...]
    translated: tuple[NodeGpu, ...]
    driver: str
    against: str

    @property
    def rank(self) -> tuple[object, ...]:
        """More is better: newest, then CUDA that the driver knows, then newest CUDA, then fewest constraints."""
        row = self.row
        return numbers(row.version), self.native, numbers(row.cuda), -len(row.constraints)


def wheel_fits(stack: Stack, framework: str, gpus: tuple[NodeGpu, ...] | None = None) -> tuple[Fit, ...]:
    """Every build of a framework for the node's machine architecture, the best first.

    Args:
        stack: Inputs, GPUs and driver.
        framework: Which.
        gpus: Instead of all GPUs of the node.
    """
    machine = stack.inputs.facts.os.architecture
    rows = (r for r in stack.inputs.catalog.wheels if r.framework == framework and machine in r.compute)
    judged = (_fit(stack, row, stack.gpus if gpus is None else gpus) for row in rows)
    return tuple(sorted(judged, key=lambda fit: fit.rank, reverse=True))


def best(judged: tuple[Fit, ...]) -> Fit | None:
    """The best that can be; what was read at its source comes before what is recalled."""
    possible = [fit for fit in judged if not fit.against]
    return next((fit for fit in possible if fit.row.confidence == "verified"), next(iter(possible), None))


def runs_on(compute: tuple[str, ...], wanted: str) -> bool:
    """Whether machine code for some compute capabilities runs on another: same major, and no newer minor."""
    major, minor = capability(wanted)
    return any(m == major and n <= minor for m, n in map(capability, compute))


def _fit(stack: Stack, row: Wheel, gpus: tuple[NodeGpu, ...]) -> Fit:
    machine = stack.inputs.facts.os.architecture
    native = is_native(stack, row.cuda)
    compute = row.compute[machine]
    without = tuple(g for g in gpus if not all(runs_on(compute, c) for c in g.compute_capabilities))
    translated = tuple(g for g in without if native and _by_ptx(row, compute, g))
    lacking = tuple(g for g in without if g not in translated)
    floors = tuple(b for b in (driver_for(stack, row.cuda), row.driver_min) if b)
    runs = is_compatible(stack, row.cuda) and int(row.driver_min or 0) <= int(stack.driver.branch.branch)
    driver = "" if runs else max(floors, key=int, default="of its own time")
    reasons = []
    if lacking:
        capabilities = ", ".join(dict.fromkeys(c for gpu in lacking for c in gpu.compute_capabilities))
        reasons.append(f"no code for {counted(tuple(gpu.name for gpu in lacking))} ({capabilities})")
    if driver:
        reasons.append(f"it needs driver branch {driver} or newer (CUDA {row.cuda})")
    return Fit(row, native, lacking, translated, driver, " and ".join(reasons))


def _by_ptx(row: Wheel, compute: tuple[str, ...], gpu: NodeGpu) -> bool:
    """Whether its PTX serves where its machine code does not."""
    least = capability(row.ptx) if row.ptx else None
    return least is not None and all(runs_on(compute, c) or capability(c) >= least for c in gpu.compute_capabilities)
