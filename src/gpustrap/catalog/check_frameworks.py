"""What is wrong with the catalog's rows of frameworks, and of uv."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.catalog.rules import in_order, missing, numbers, versions_in_order
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_frameworks import Wheel

PACKAGES = {"pytorch": "torch"}  # what the package index calls a framework, where it is not by its name


def framework_faults(catalog: Catalog) -> Iterator[str]:
    """Sentences, each with the file and row it is about."""
    for topic, rows in (("frameworks", catalog.wheels), ("frameworks_conda", catalog.conda_builds)):
        yield from in_order(topic, [(w.framework, numbers(w.version), w.variant, tuple(w.compute)) for w in rows])
        for wheel in rows:
            yield from _wheel(catalog, wheel, wheel.row.removeprefix("catalog: "))
    for wheel in catalog.wheels:
        package = PACKAGES.get(wheel.framework, wheel.framework)
        yield from _asks_for(wheel, f"{package}==", f"{package}[")
    for wheel in catalog.conda_builds:
        yield from _asks_for(wheel, f"{wheel.framework} =={wheel.version} ")
        if wheel.index or wheel.constraints:
            yield f"{wheel.row}: conda's builds have neither index nor constraints"
    yield from _uv(catalog)


def _wheel(catalog: Catalog, wheel: Wheel, where: str) -> Iterator[str]:
    yield from missing(where, "branch", {wheel.driver_min} - {""}, {d.branch for d in catalog.drivers})
    yield from missing(where, "architecture", wheel.compute, catalog.server.architectures.names)
    yield from versions_in_order(f"{where}, pythons", wheel.pythons)
    if wheel.cuda:
        majors = {m.major for m in catalog.cuda.majors}
        yield from missing(where, "CUDA major", {wheel.cuda.partition(".")[0]}, majors)
        yield from _code(catalog, wheel, where)
    elif any(wheel.compute.values()) or wheel.ptx or wheel.driver_min:
        yield f"{where}: code for GPUs, and no CUDA that it is built for"
    if wheel.index and not wheel.index.startswith("https://"):
        yield f"{where}: {wheel.index} is no https URL"


def _code(catalog: Catalog, wheel: Wheel, where: str) -> Iterator[str]:
    known = {c for a in catalog.architectures for c in a.compute_capabilities}
    for machine, compute in wheel.compute.items():
        if not compute:
            yield f"{where}: no code for any GPU on {machine}"
            continue
        yield from versions_in_order(f"{where}, {machine}", compute)
        yield from missing(where, "compute capability", {*compute, wheel.ptx} - {""}, known)
        if wheel.ptx and wheel.ptx != compute[-1]:
            yield f"{where}: PTX of {wheel.ptx}, and no code for it or code for later ones"
        if wheel.cuda.startswith("13.") and numbers(compute[0]) < (7, 5):
            yield f"{where}: CUDA 13 makes no code for {compute[0]}"


def _asks_for(wheel: Wheel, *starts: str) -> Iterator[str]:
    if not wheel.requirement.startswith(starts) or f"={wheel.version}" not in wheel.requirement:
        yield f"{wheel.row}: {wheel.requirement} asks for something else"


def _uv(catalog: Catalog) -> Iterator[str]:
    yield from in_order("uv", [row.architecture for row in catalog.uv])
    yield from missing(
        "uv", "architecture", {row.architecture for row in catalog.uv}, catalog.server.architectures.names
    )
    if len({row.version for row in catalog.uv}) != 1:
        yield "uv: one version for every architecture, so that all nodes build alike"
    for row in catalog.uv:
        if not row.file.startswith(f"uv-{row.version}-py3-none-") or not row.file.endswith(f"{row.architecture}.whl"):
            yield f"uv, {row.architecture}: {row.file} is the wheel of something else"
