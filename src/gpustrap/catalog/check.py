"""What is wrong with a catalog that its schema cannot see: order, repetition, references that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.catalog.check_stack import stack_faults
from gpustrap.catalog.rules import in_order, missing, numbers, versions_in_order
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_gpu import Architecture, DriverBranch, Gpu


def faults(catalog: Catalog) -> tuple[str, ...]:
    """Sentences, each with the file and row it is about; none if the catalog is sound."""
    return (
        *_architectures(catalog),
        *_id_ranges(catalog),
        *_gpus(catalog),
        *_drivers(catalog),
        *_cuda(catalog),
        *stack_faults(catalog),
    )


def _architectures(catalog: Catalog) -> Iterator[str]:
    branches = {d.branch for d in catalog.drivers}
    rows = catalog.architectures
    yield from in_order("gpus, architectures", [(numbers(a.compute_capabilities[0]), a.name) for a in rows])
    for architecture in rows:
        where = f"gpus, {architecture.name}"
        yield from versions_in_order(f"{where}, compute capabilities", architecture.compute_capabilities)
        yield from missing(where, "branch", {architecture.driver_min, architecture.driver_max} - {""}, branches)
        drives = [d for d in catalog.drivers if architecture.name in d.architectures]
        if not any(set(d.flavours) & set(architecture.flavours) for d in drives):
            yield f"{where}: no branch drives it in one of its flavours"
        for driver in catalog.drivers:
            if (driver in drives) != _within(architecture, driver):
                yield f"{where}: its driver_min and driver_max do not say the same as branch {driver.branch} of drivers"


def _within(architecture: Architecture, driver: DriverBranch) -> bool:
    return architecture.driver_min <= driver.branch <= (architecture.driver_max or "999")


def _id_ranges(catalog: Catalog) -> Iterator[str]:
    names = {a.name for a in catalog.architectures}
    expected = 0
    for row in catalog.id_ranges:
        where = f"gpus, ids {row.first}-{row.last}"
        if int(row.first, 16) != expected or row.last < row.first:
            yield f"{where}: does not begin where the range before it ends"
        expected = int(row.last, 16) + 1
        yield from missing(where, "architecture", row.architectures, names)


def _gpus(catalog: Catalog) -> Iterator[str]:
    yield from in_order("gpus, gpus", [(g.ids[0], g.name) for g in catalog.gpus])
    names = [g.name for g in catalog.gpus]
    yield from (f"gpus, {name}: stands there twice" for name in sorted({n for n in names if names.count(n) > 1}))
    for gpu in catalog.gpus:
        yield from _gpu(catalog, gpu, f"gpus, {gpu.name}")


def _gpu(catalog: Catalog, gpu: Gpu, where: str) -> Iterator[str]:
    yield from in_order(f"{where}, ids", gpu.ids)
    yield from missing(where, "branch", {gpu.driver_min} - {""}, {d.branch for d in catalog.drivers})
    architecture = next((a for a in catalog.architectures if a.name == gpu.architecture), None)
    if architecture is None:
        yield f"{where}: architecture {gpu.architecture} is not in the catalog"
    elif gpu.compute_capability not in architecture.compute_capabilities:
        yield f"{where}: compute capability {gpu.compute_capability} is none of {architecture.name}"
    for device in gpu.ids:
        found = catalog.id_range(device)
        # Grace Hopper's ids lie among Hopper's; an unlisted one is taken for a Hopper, which on aarch64 means the same.
        allowed = {gpu.architecture, "Hopper"} if gpu.architecture == "Grace Hopper" else {gpu.architecture}
        if found is None or not allowed & set(found.architectures):
            yield f"{where}: id {device} lies in no range of {gpu.architecture}"


def _drivers(catalog: Catalog) -> Iterator[str]:
    names = [a.name for a in catalog.architectures]
    yield from in_order("drivers", [d.branch for d in catalog.drivers])
    for driver in catalog.drivers:
        where = f"drivers, {driver.branch}"
        yield from missing(where, "architecture", driver.architectures, names)
        if list(driver.architectures) != [n for n in names if n in driver.architectures]:
            yield f"{where}: architectures are not in the order of gpus"
        if driver.newest and driver.newest.partition(".")[0] != driver.branch:
            yield f"{where}: version {driver.newest} is of another branch"
        if bool(driver.kernel_before) != bool(driver.kernel_source):
            yield f"{where}: kernel_before and kernel_source come together"


def _cuda(catalog: Catalog) -> Iterator[str]:
    known = {c for a in catalog.architectures for c in a.compute_capabilities}
    majors = {m.major: m for m in catalog.cuda.majors}
    yield from in_order("cuda, majors", [int(major) for major in majors])
    yield from in_order("cuda, toolkits", [numbers(t.version) for t in catalog.cuda.toolkits])
    for toolkit in catalog.cuda.toolkits:
        where = f"cuda, {toolkit.version}"
        yield from versions_in_order(f"{where}, compute capabilities", toolkit.compute)
        yield from missing(where, "compute capability", toolkit.compute, known)
        yield from in_order(f"{where}, repositories", toolkit.repositories)
        yield from missing(where, "distribution", toolkit.repositories, {d.nvidia for d in catalog.distros})
        if not toolkit.newest.startswith(f"{toolkit.version}."):
            yield f"{where}: release {toolkit.newest} is of another version"
        major = majors.get(toolkit.version.partition(".")[0])
        if major is None:
            yield f"{where}: its major version is not in majors"
        elif toolkit.driver_min < major.driver_min:
            yield f"{where}: it cannot need an older driver than every {major.major}.x does"
    yield from in_order(
        "libraries", [(lib.name, int(lib.cuda_major), numbers(lib.version)) for lib in catalog.libraries]
    )
    for lib in catalog.libraries:
        yield from missing(f"libraries, {lib.name} {lib.version}", "CUDA major", {lib.cuda_major}, majors)
