"""What is wrong with the software half of a catalog: repositories, packages, containers, frameworks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpustrap.catalog.check_frameworks import framework_faults
from gpustrap.catalog.rules import in_order, missing, numbers, versions_in_order
from gpustrap.catalog.schema import Catalog, Distro, DockerUpstream
from gpustrap.catalog.schema_stack import DriverPackages, Repository

# The node's program takes at most a thousand names, and a request adds its own.
MOST_PACKAGES = 900
FINGERPRINT = re.compile(r"[0-9A-F]{40}")
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*")
# Names of NVIDIA's that end with a branch end at 580: later ones do not exist.
LAST_IN_A_NAME, FIRST_OPEN_ONLY = "580", "615"
# The metapackage of the proprietary driver: empty from there on, so that apt installs no driver and is content.
EMPTY = "cuda-drivers"


def stack_faults(catalog: Catalog) -> tuple[str, ...]:
    """Sentences, each with the file and row it is about; none if all is sound."""
    found = (
        *_distros(catalog),
        *_repositories(catalog),
        *_packages(catalog),
        *_containers(catalog),
        *framework_faults(catalog),
        *_controllers(catalog),
    )
    return found or tuple(_asked(catalog))


def _distros(catalog: Catalog) -> Iterator[str]:
    yield from in_order("distros", [(d.id, d.version_id) for d in catalog.distros])
    names = {r.name for r in catalog.repositories}
    called: dict[tuple[str, str], str] = {}
    for distro in catalog.distros:
        where = f"distros, {distro.key}"
        yield from missing(where, "repository", {distro.archive, distro.nvidia} - {""}, names)
        yield from in_order(f"{where}, aliases", distro.aliases)
        yield from _kernels(where, distro)
        for name in (distro.id, *distro.aliases):
            other = called.setdefault((name, distro.version_id), distro.key)
            if other != distro.key:
                yield f"{where}: {name} {distro.version_id} is {other}, too"


def _kernels(where: str, distro: Distro) -> Iterator[str]:
    yield from in_order(f"{where}, kernel_flavours", distro.kernel_flavours)
    yield from in_order(f"{where}, prebuilt_for", distro.prebuilt_for)
    yield from missing(where, "kernel flavour", distro.prebuilt_for, distro.kernel_flavours)
    if bool(distro.kernel_release) != bool(distro.kernel_flavours):
        yield f"{where}: kernel_release and kernel_flavours tell a kernel's flavour together only"
    try:
        re.compile(distro.kernel_release)
    except re.error as error:
        yield f"{where}: kernel_release is no pattern: {error}"


def _repositories(catalog: Catalog) -> Iterator[str]:
    yield from in_order("repositories", [(r.name, r.architecture) for r in catalog.repositories])
    own = {d.archive for d in catalog.distros}
    for row in catalog.repositories:
        where = f"repositories, {row.name} {row.architecture}".rstrip()
        yield from missing(where, "architecture", {row.architecture} - {""}, catalog.server.architectures.names)
        yield from _keys(where, row, is_own=row.name in own)
        yield from _fingerprints(where, row.fingerprints)
        for url in filter(None, (row.base, row.snapshot)):
            if not url.startswith(("http://", "https://")):
                yield f"{where}: {url} is no URL"
        if row.base.endswith("/") or (row.path and not row.path.startswith("/")):
            yield f"{where}: base and path make no URL: {row.base}{row.path}"
        if row.snapshot and "{time}" not in row.snapshot:
            yield f"{where}: snapshot has no {{time}}"
        if bool(row.suite) != (row.kind == "apt"):
            yield f"{where}: apt's repositories have a suite, dnf's have none"


def _keys(where: str, row: Repository, *, is_own: bool) -> Iterator[str]:
    known = bool(row.fingerprints or row.sha256)
    if is_own == known:
        yield f"{where}: its keys are the system's" if is_own else f"{where}: neither fingerprints nor sha256"
    if is_own == bool(row.key or row.keyring) or (row.key and row.keyring):
        yield f"{where}: it has {'no' if is_own else 'one'} key or keyring"


def _fingerprints(where: str, fingerprints: tuple[str, ...]) -> Iterator[str]:
    yield from (f"{where}: {f} is no whole fingerprint" for f in fingerprints if not FINGERPRINT.fullmatch(f))


def _packages(catalog: Catalog) -> Iterator[str]:
    rows = catalog.driver_packages
    yield from in_order(
        "packages", [(r.origin, r.distros[0], r.branches[0], r.flavour, r.module, r.leading) for r in rows]
    )
    branches = {d.branch: d for d in catalog.drivers}
    distros = {d.key: d for d in catalog.distros}
    taken: dict[tuple[str, ...], DriverPackages] = {}
    for row in rows:
        where = row.row.removeprefix("catalog: ")
        yield from missing(where, "distribution", row.distros, distros)
        yield from missing(where, "branch", row.branches, branches)
        yield from in_order(f"{where}, packages", row.packages)
        if bool(row.kernel_before) != bool(row.kernel_source):
            yield f"{where}: kernel_before and kernel_source come together"
        yield from _one_repository(where, row, catalog, [distros[key] for key in row.distros if key in distros])
        for branch in row.branches:
            if branch in branches and row.flavour not in branches[branch].flavours:
                yield f"{where}: branch {branch} has no {row.flavour} modules"
            for distro in row.distros:
                family = row.leading if row.only_kept else ""
                if taken.setdefault((row.origin, distro, branch, row.flavour, row.module, family), row) is not row:
                    yield f"{where}: another row has {branch} on {distro}, too"
        yield from _names(where, row)
    for driver in catalog.drivers:
        if driver.supported and not any(driver.branch in row.branches for row in rows):
            yield f"drivers, {driver.branch}: supported, and packages has no row for it"


def _one_repository(where: str, row: DriverPackages, catalog: Catalog, distros: list[Distro]) -> Iterator[str]:
    yield from missing(where, "repository", {row.repository}, {r.name for r in catalog.repositories})
    for distro in distros:
        right = distro.nvidia if row.origin == "nvidia" else distro.archive
        if row.repository != right:
            yield f"{where}: on {distro.name} packages of {row.origin} are in {right}, not in {row.repository}"
        pins = {"redhat": "versionlock", "debian": "preferences" if row.origin == "nvidia" else "hold"}
        if row.pin != pins[distro.family]:
            yield f"{where}: on {distro.name} they are pinned by {pins[distro.family]}"
        if row.stream and (distro.family, distro.version_id) not in {("redhat", "8"), ("redhat", "9")}:
            yield f"{where}: {distro.name} has no module streams"


def _names(where: str, row: DriverPackages) -> Iterator[str]:
    """Templates that cannot be filled, and names that are known not to exist."""
    if row.leading not in row.packages:
        yield f"{where}: {row.leading} leads, and is none of its packages"
    yield from versions_in_order(f"{where}, seen", row.seen)
    for version in row.seen:
        if not any(re.fullmatch(rf"{branch}(\.\d+){{1,2}}", version) for branch in row.branches):
            yield f"{where}: version {version} is of none of its branches"
    fabric = (*row.fabric_manager, *row.subnet_manager, row.subnet_library, row.imex)
    versioned = (*row.packages, *fabric, row.leading, row.stream)
    if any("{kernel" in name for name in versioned):
        yield f"{where}: only kernel_packages know the kernel"
    try:
        names = row.names(("generic",))
        row.stream.format(branch="580")
        row.version.format(version="580.1")
    except (IndexError, KeyError, ValueError) as error:
        yield f"{where}: a template cannot be filled: {error}"
        return
    yield from (
        f"{where}: {name} is no name of a package"
        for name in sorted(names)
        if not PACKAGE.fullmatch(name.replace("{kernel}", "6.8.0-generic"))
    )
    yield from _ghosts(where, row, names)


def _ghosts(where: str, row: DriverPackages, names: set[str]) -> Iterator[str]:
    if row.origin != "nvidia":
        return
    later = [branch for branch in row.branches if branch > LAST_IN_A_NAME]
    for name in sorted(names):
        if any(name.endswith((f"-{branch}", f"-{branch}-open")) for branch in later):
            yield f"{where}: there is no {name}, names of NVIDIA's end with a branch up to {LAST_IN_A_NAME} only"
    if EMPTY in names and any(branch >= FIRST_OPEN_ONLY for branch in row.branches):
        yield f"{where}: {EMPTY} is empty from {FIRST_OPEN_ONLY} on: apt would install no driver and be content"


def _containers(catalog: Catalog) -> Iterator[str]:
    toolkit = catalog.container_toolkit
    kinds = {r.name: r.kind for r in catalog.repositories}
    for name, kind in ((toolkit.repository, "apt"), (toolkit.rpm_repository, "dnf")):
        yield from missing("containers, toolkit", "repository", {name}, kinds)
        if kinds.get(name, kind) != kind:
            yield f"containers, toolkit: {name} is no repository of {kind}"
    yield from in_order("containers, toolkit, packages", toolkit.packages)
    yield from versions_in_order("containers, cdi", [row.spec for row in catalog.cdi])
    yield from missing("containers, toolkit", "CDI spec", {toolkit.cdi_spec}, {row.spec for row in catalog.cdi})
    for row in catalog.cdi:
        if numbers(row.docker_default) < numbers(row.docker_min):
            yield f"containers, cdi {row.spec}: docker cannot use it by itself before it reads it"
    yield from _docker("containers, docker, upstream", catalog.docker.upstream)
    yield from _docker("containers, docker, rpm", catalog.docker.rpm)


def _docker(where: str, row: DockerUpstream) -> Iterator[str]:
    yield from in_order(f"{where}, packages", list(row.packages))
    yield from _fingerprints(where, row.fingerprints)


def _asked(catalog: Catalog) -> Iterator[str]:
    """Only once every template can be filled."""
    asked = len(catalog.packages())
    if asked > MOST_PACKAGES:
        yield f"packages: nodes would be asked about {asked} packages, {MOST_PACKAGES} at most"


def _controllers(catalog: Catalog) -> Iterator[str]:
    yield from versions_in_order("server, controllers", [row.ansible_core for row in catalog.controllers])
