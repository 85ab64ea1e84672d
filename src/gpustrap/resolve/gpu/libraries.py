"""Decides cuDNN and NCCL, each for the toolkit that was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpustrap.catalog.schema_gpu import CudaToolkit
from gpustrap.catalog.schema_gpu import Library as Row
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.resolve.confidence import confidence
from gpustrap.resolve.gpu.boards import capability, counted
from gpustrap.resolve.gpu.packages import installed, known_to_all, numbers, or_newer, upstream
from gpustrap.resolve.gpu.stack import Stack

LibraryName = Literal["cudnn", "nccl"]
TITLES: dict[LibraryName, str] = {"cudnn": "cuDNN", "nccl": "NCCL"}


@dataclass(frozen=True, slots=True)
class Library:
    """What was decided of one library."""

    choice: Choice
    reasoning: Reasoning
    packages: dict[str, str]
    findings: tuple[Finding, ...] = ()
    disk: tuple[tuple[str, int], ...] = ()


def plan_library(stack: Stack, item: LibraryName, toolkit: CudaToolkit, lock: dict[str, str]) -> Library:
    """Decide one of them.

    Args:
        stack: Inputs, GPUs and driver.
        item: Which.
        toolkit: What it is for.
        lock: Package -> version as locked with this toolkit.
    """
    major = toolkit.version.partition(".")[0]
    rows = [r for r in stack.inputs.catalog.libraries if r.name == item and r.cuda_major == major]
    rows = [r for r in sorted(rows, key=lambda r: numbers(r.version), reverse=True) if _packages(stack, r, toolkit)]
    lines: list[str] = []
    for row in rows:
        against = _against(stack, row)
        if not against:
            return _taken(stack, row, _packages(stack, row, toolkit), lock, lines)
        lines.append(f"Passed over: {TITLES[item]} {row.version}: {against}.")
    return _none(item, major, lines)


def _packages(stack: Stack, row: Row, toolkit: CudaToolkit) -> dict[str, str]:
    """Package -> version; none where the row has none for the node's family."""
    cuda = {"cuda": toolkit.version, "major": row.cuda_major}
    templates = row.rpms if stack.inputs.distro.family == "redhat" else row.debs
    return {name.format(**cuda): version.format(**cuda) for name, version in templates.items()}


def _against(stack: Stack, row: Row) -> str:
    """Why it cannot be, as the end of a sentence; empty where it can."""
    least = capability(row.compute_min)
    below = [gpu for gpu in stack.gpus if any(capability(c) < least for c in gpu.compute_capabilities)]
    if below:
        return f"it needs compute capability {row.compute_min}, more than {counted(tuple(g.name for g in below))} has"
    return "its versions are recalled, not verified" if row.confidence == "recalled" else ""


def _taken(stack: Stack, row: Row, packages: dict[str, str], lock: dict[str, str], passed: list[str]) -> Library:
    """``passed``: what newer rows lack; then no newer version will do, whatever the node knows."""
    inputs, ceiling = stack.inputs, bool(passed)
    title = TITLES[row.name]
    repository = inputs.catalog.repository(inputs.distro.nvidia, inputs.facts.os.architecture)
    on_node = [v for v in known_to_all(inputs, packages) if _suits(v, row, ceiling=ceiling)]
    newest = on_node[0] if on_node else next(iter(packages.values()))
    if packages.keys() <= lock.keys():
        packages = {name: lock[name] for name in packages}
        whence = f"locked{or_newer(newest, next(iter(packages.values())))}"
    elif on_node:
        packages = dict.fromkeys(packages, newest)
        whence = "the newest that the node's package manager knows"
    else:
        whence = "the newest that the catalog knows"
    version = upstream(next(iter(packages.values())))
    limit = "the newest for these GPUs" if ceiling else f"for CUDA {row.cuda_major}"
    choice = Choice(
        item=row.name,
        value=version,
        reason=f"{limit}; {whence}",
        source=f"catalog: libraries, {row.name} {row.version} for CUDA {row.cuda_major}",
        confidence=confidence(row, repository),
        simulated=inputs.simulated,
    )
    lines = [*passed, f"Chosen: {title} {version}: {choice.reason} ({choice.source}: {row.source})."]
    disk = () if installed(inputs, packages) else (("/usr", row.size),)
    return Library(choice, Reasoning(item=row.name, sentences=tuple(lines)), packages, disk=disk)


def _suits(version: str, row: Row, *, ceiling: bool) -> bool:
    """Whether a version the node knows is of the row's line: same generation, and built for the same CUDA major."""
    _, built, cuda = version.partition("+cuda")
    if built and cuda.partition(".")[0] != row.cuda_major:
        return False
    if not built and any("+cuda" in v for v in row.debs.values()):
        return False  # a distribution's own build
    if ceiling and numbers(version) > numbers(row.version):
        return False
    return numbers(version)[:1] == numbers(row.version)[:1]


def _none(item: LibraryName, major: str, lines: list[str]) -> Library:
    title = TITLES[item]
    reason = f"the catalog has no {title} for CUDA {major} that all GPUs can use"
    finding = Finding(
        code=f"{item}-none",
        severity="warning",
        subject=title,
        message=f"none is planned: {reason}",
        evidence="\n".join(lines) or f"catalog: libraries has no {title} for CUDA {major} at all",
        advice=f"set gpustrap_{item}: false if nothing needs it; frameworks bring their own",
    )
    choice = Choice(item=item, value="none", reason=reason, source="catalog: libraries")
    return Library(choice, Reasoning(item=item, sentences=(*lines, "Chosen: none.")), {}, (finding,))
