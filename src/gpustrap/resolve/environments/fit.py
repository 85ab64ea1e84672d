"""Which builds of a framework an environment's GPUs, driver, Python and machine architecture allow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from gpustrap.catalog.schema_frameworks import Wheel
from gpustrap.resolve.environments.python import Python, python_for
from gpustrap.resolve.environments.target import Target
from gpustrap.resolve.gpu.boards import NodeGpu, capability, counted
from gpustrap.resolve.gpu.cuda_fit import driver_for, is_compatible, is_native
from gpustrap.resolve.gpu.packages import numbers
from gpustrap.resolve.gpu.stack import Stack


@dataclass(frozen=True, slots=True)
class Fit:
    """A build against an environment.

    Attributes:
        python: That it would run under.
        native: The driver knows all of its CUDA version; true of a build for the processor.
        lacking: GPUs that it has no code for.
        translated: GPUs that it has only PTX for, of which the driver makes code.
        driver: The branch it needs, where the node's is older.
        against: Why it cannot be, as the end of a sentence; empty where it can.
    """

    row: Wheel
    python: Python
    native: bool = True
    lacking: tuple[NodeGpu, ...] = ()
    translated: tuple[NodeGpu, ...] = ()
    driver: str = ""
    against: str = ""

    @property
    def called(self) -> str:
        """``pytorch 2.14.0 cu130``."""
        return f"{self.row.framework} {self.row.version} {self.row.variant}"

    @property
    def doubted(self) -> bool:
        """Whether a GPU has only its PTX, of which somebody reported that it fails."""
        return bool(self.translated and self.row.ptx_fails)

    def rank(self, policy: str) -> tuple[object, ...]:
        """More is better: newest and CUDA that the driver knows, this one first where policy is stable.

        Then the newest CUDA, then fewest constraints.
        """
        row = self.row
        first = (numbers(row.version), self.native) if policy == "latest" else (self.native, numbers(row.version))
        return *first, numbers(row.cuda or "0"), -len(row.constraints)


def fits(target: Target) -> tuple[Fit, ...]:
    """Every build of the environment's framework for the node's machine architecture, the best first."""
    inputs, wish = target.inputs, target.wish
    machine = inputs.facts.os.architecture
    rows = inputs.catalog.conda_builds if wish.engine == "conda" else inputs.catalog.wheels
    mine = (r for r in rows if r.framework == wish.framework and machine in r.compute)
    judged = (_fit(target, row) for row in mine if bool(row.cuda) == bool(target.stack))
    return tuple(sorted(judged, key=lambda fit: fit.rank(inputs.request.policy), reverse=True))


def best(judged: tuple[Fit, ...]) -> Fit | None:
    """The best that can be; what was read at its source comes before what is recalled."""
    possible = [fit for fit in judged if not fit.against]
    return next((fit for fit in possible if fit.row.confidence == "verified"), next(iter(possible), None))


@cache
def runs_on(compute: tuple[str, ...], wanted: str) -> bool:
    """Whether machine code for some compute capabilities runs on another: same major, and no newer minor."""
    major, minor = capability(wanted)
    return any(m == major and n <= minor for m, n in map(capability, compute))


def _fit(target: Target, row: Wheel) -> Fit:
    python = python_for(target, row.pythons)
    against = "" if python.version else python.reason
    if target.stack is None:
        return Fit(row, python, against=against)
    return _on_gpus(target.stack, row, python, against)


def _on_gpus(stack: Stack, row: Wheel, python: Python, against: str) -> Fit:
    wanted = tuple((gpu, frozenset(gpu.compute_capabilities)) for gpu in stack.gpus)
    compute = row.compute[stack.inputs.facts.os.architecture]
    native = is_native(stack, row.cuda)
    every = frozenset[str]().union(*(capabilities for _, capabilities in wanted))
    code = frozenset(c for c in every if runs_on(compute, c))
    ptx = frozenset(c for c in every if native and row.ptx and capability(c) >= capability(row.ptx))
    lacking = tuple(gpu for gpu, capabilities in wanted if not capabilities <= code | ptx)
    translated = tuple(gpu for gpu, capabilities in wanted if capabilities <= code | ptx and not capabilities <= code)
    floors = tuple(b for b in (driver_for(stack, row.cuda), row.driver_min) if b)
    runs = is_compatible(stack, row.cuda) and int(row.driver_min or 0) <= int(stack.driver.branch.branch)
    driver = "" if runs else max(floors, key=int, default="of its own time")
    reasons = []
    if lacking:
        capabilities = ", ".join(dict.fromkeys(c for gpu in lacking for c in gpu.compute_capabilities))
        reasons.append(f"no code for {counted(tuple(gpu.name for gpu in lacking))} ({capabilities})")
    if driver:
        reasons.append(f"it needs driver branch {driver} or newer (CUDA {row.cuda})")
    reasons += [against] if against else []
    return Fit(row, python, native, lacking, translated, driver, " and ".join(reasons))
