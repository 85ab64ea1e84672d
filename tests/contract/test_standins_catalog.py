"""The catalog against the stand-in of NVIDIA's repositories, which was transcribed without it: names, versions, paths.

A wrong name in the catalog fails here. What differs for a reason stands in KNOWN, with the reason; what no longer
differs must go from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema_gpu import CudaToolkit
from gpustrap.catalog.schema_stack import DriverPackages
from gpustrap.lab.standins import nvidia_data, nvidia_rpm

CATALOG = load_catalog()
REPOSITORIES = nvidia_data.repositories()
RPM_REPOSITORIES = [name for name, one in nvidia_rpm.repositories().items() if not one.like]
# Of the distribution's own archive.
ARCHIVE = {"infiniband-diags"}

UNREAD_620 = "no exact version of 620 was read anywhere, so the stand-in has none; the catalog's rows are recalled"
UNREAD_RPM = "nobody has read it in this repository; the catalog's row is recalled"
KNOWN = {
    **{f"{name} open 620: no such branch": UNREAD_620 for name in REPOSITORIES},
    "debian13 open 580: no such branch": "NVIDIA/cuda-repo-management#38: not there; the catalog's row is recalled",
    "debian13 proprietary 580: no such branch": "as open 580",
    "rhel10 open 595: no such branch": UNREAD_RPM,
    "rhel10 open 610: no such branch": UNREAD_RPM,
    "rhel10 open 620: no such branch": UNREAD_620,
    "rhel10 proprietary 580: no package kmod-nvidia-latest-dkms": UNREAD_RPM,
    "rhel10 proprietary 595: no such branch": UNREAD_RPM,
    "rhel10 proprietary 610: no such branch": UNREAD_RPM,
    "rhel9 open 610: no stream nvidia-driver:610-open": UNREAD_RPM,
    "rhel9 open 615: no stream nvidia-driver:615-open": UNREAD_RPM,
    "rhel9 open 620: no such branch": UNREAD_620,
    "rhel9 proprietary 595: no stream nvidia-driver:595-dkms": UNREAD_RPM,
    "rhel9 proprietary 610: no stream nvidia-driver:610-dkms": UNREAD_RPM,
}


def held(repository: str) -> dict[str, set[str]]:
    """Name -> versions of all that a stand-in repository has."""
    found = defaultdict(set)
    for package in nvidia_data.packages(repository):
        found[package.name].add(package.version)
    return found


HELD = {name: held(name) for name in nvidia_data.all_repositories()}


def branch_of(version: str) -> str:
    return version.partition(".")[0]


def newest(versions: set[str]) -> str:
    """The newest upstream version among package versions."""
    return max(
        (nvidia_data.upstream(version) for version in versions),
        key=lambda text: [int(part) for part in text.split(".")],
    )


def driver_differences(row: DriverPackages) -> Iterator[str]:
    packages = HELD[row.repository]
    exact = (*row.packages, *row.fabric_manager, *filter(None, [row.imex]))
    for branch in row.branches:
        where = f"{row.repository} {row.flavour} {branch}"
        ours = {name: {v for v in versions if branch_of(v) == branch} for name, versions in packages.items()}
        if not ours.get("nvidia-modprobe"):
            yield f"{where}: no such branch"
            continue
        # "{version}-1": what the catalog has seen there or, for want of that, the newest that the stand-in has.
        wanted = row.version.format(version=row.seen_of(branch) or newest(ours["nvidia-modprobe"]))
        for name in (template.format(branch=branch) for template in {*exact, row.leading}):
            if not ours.get(name):
                yield f"{where}: no package {name}"
            elif wanted not in ours[name]:
                yield f"{where}: no {name}={wanted}"
        for name in {*row.subnet_manager} - ARCHIVE:
            if name not in packages:
                yield f"{where}: no package {name}"


def rpm_differences(row: DriverPackages) -> Iterator[str]:
    """Names at their version, each in the stream that the catalog enables; the fabric's are in none."""
    packages = nvidia_rpm.packages(row.repository)
    streams = nvidia_rpm.repositories()[row.repository].streams
    exact = (*row.packages, *row.fabric_manager, *filter(None, [row.imex, row.subnet_library]))
    for branch in row.branches:
        where = f"{row.repository} {row.flavour} {branch}"
        ours = [rpm for rpm in packages if branch_of(rpm.version) == branch]
        if not any(rpm.name == "nvidia-kmod-common" for rpm in ours):
            yield f"{where}: no such branch"
            continue
        stream = row.stream.format(branch=branch)
        if bool(stream) != bool(streams) or (stream and stream.partition(":")[2] not in streams):
            yield f"{where}: no stream {stream}"
            continue
        wanted = row.seen_of(branch) or newest({f"{rpm.version}-1" for rpm in ours})
        for name in (template.format(branch=branch) for template in {*exact, row.leading}):
            mine = [rpm for rpm in ours if rpm.name == name]
            if not mine:
                yield f"{where}: no package {name}"
            elif wanted not in {rpm.version for rpm in mine}:
                yield f"{where}: no {name}-{wanted}"
            elif stream and not any(not r.streams or stream.partition(":")[2] in r.streams for r in mine):
                yield f"{where}: {name} not in {stream}"
        elsewhere = {*row.subnet_manager, *row.kernel_packages} - {rpm.name for rpm in packages}
        for name in elsewhere - {rpm.name for rpm in nvidia_rpm.distribution()}:
            yield f"{where}: no package {name}"


def rpm_stack_differences() -> Iterator[str]:
    for repository in RPM_REPOSITORIES:
        packages = {(rpm.name, f"{rpm.version}-{rpm.release}") for rpm in nvidia_rpm.packages(repository)}
        toolkits = [t for t in CATALOG.cuda.toolkits if repository in t.repositories]
        for toolkit in toolkits:
            major, _, minor = toolkit.version.partition(".")
            package = CATALOG.cuda.package.format(major=major, minor=minor)
            if (package, CATALOG.cuda.package_version.format(newest=toolkit.newest)) not in packages:
                yield f"{repository}: no {package}-{toolkit.newest}"
        majors = {toolkit.version.partition(".")[0] for toolkit in toolkits}
        for library in CATALOG.libraries:
            for item in library.rpms.items() if library.cuda_major in majors else ():
                if item not in packages:
                    yield f"{repository}: no {'-'.join(item)}"


def toolkit_differences(toolkit: CudaToolkit) -> Iterator[str]:
    major, _, minor = toolkit.version.partition(".")
    name = CATALOG.cuda.package.format(major=major, minor=minor)
    for repository in {*toolkit.repositories} & {*REPOSITORIES}:
        where, versions = f"{repository} toolkit {toolkit.version}", HELD[repository].get(name, set())
        wanted = CATALOG.cuda.package_version.format(newest=toolkit.newest)
        if wanted not in versions:
            yield f"{where}: no {name}={wanted}"
        elif newest(versions) != toolkit.newest:
            yield f"{where}: newest is {newest(versions)}, not {toolkit.newest}"


def library_differences() -> Iterator[str]:
    for library in CATALOG.libraries:
        minors = [t.version for t in CATALOG.cuda.toolkits if t.version.startswith(f"{library.cuda_major}.")]
        for repository in REPOSITORIES:
            minors_there = [m for m in minors if f"cuda-toolkit-{m.replace('.', '-')}" in HELD[repository]]
            for minor in minors_there:
                for name, version in library.debs.items():
                    filled = [text.format(cuda=minor, major=library.cuda_major) for text in (name, version)]
                    if filled[1] not in HELD[repository].get(filled[0], set()):
                        yield f"{repository}: no {'='.join(filled)}"


def nvidia_rows(repositories: Sequence[str] = REPOSITORIES) -> list[DriverPackages]:
    return [row for row in CATALOG.driver_packages if row.origin == "nvidia" and row.repository in repositories]


def test_every_name_and_version_of_the_catalog_is_there() -> None:
    rows = nvidia_rows()
    assert {row.repository for row in rows} == set(REPOSITORIES)
    found = {text for row in rows for text in driver_differences(row)}
    found |= {text for toolkit in CATALOG.cuda.toolkits for text in toolkit_differences(toolkit)}
    found |= set(library_differences())
    rpm_rows = nvidia_rows(RPM_REPOSITORIES)
    assert {row.repository for row in rpm_rows} == set(RPM_REPOSITORIES)
    found |= {text for row in rpm_rows for text in rpm_differences(row)}
    found |= set(rpm_stack_differences())
    assert sorted(found - KNOWN.keys()) == []
    assert sorted(KNOWN.keys() - found) == [], "no longer a difference: take it from KNOWN"


def test_a_wrong_name_is_found() -> None:
    rows = (r for r in nvidia_rows() if (r.repository, r.flavour) == ("ubuntu2404", "open"))
    row = next(r for r in rows if r.branches == ("595", "610"))
    wrong = row.model_copy(update={"packages": ("nvidia-open-{branch}",), "leading": "nvidia-open-{branch}"})
    assert set(driver_differences(wrong)) == {
        "ubuntu2404 open 595: no package nvidia-open-595",
        "ubuntu2404 open 610: no package nvidia-open-610",
    }


def test_a_wrong_version_is_found() -> None:
    row = next(r for r in nvidia_rows() if r.repository == "ubuntu2404" and r.branches == ("580",))
    found = set(driver_differences(row.model_copy(update={"version": "{version}-0ubuntu0.24.04.1"})))
    assert f"ubuntu2404 {row.flavour} 580: no nvidia-imex=580.178.04-0ubuntu0.24.04.1" in found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"packages": ("kmod-nvidia-open-dkms-{branch}",)}, "rhel9 open 580: no package kmod-nvidia-open-dkms-580"),
        ({"stream": "nvidia-driver:{branch}-open-dkms"}, "rhel9 open 580: no stream nvidia-driver:580-open-dkms"),
        (
            {"stream": "nvidia-driver:{branch}-dkms"},
            "rhel9 open 580: kmod-nvidia-open-dkms not in nvidia-driver:580-dkms",
        ),
        ({"fabric_manager": ("nvidia-fabric-manager",)}, "rhel9 open 580: no package nvidia-fabric-manager"),
        ({"seen": ("580.1.1",)}, "rhel9 open 580: no nvidia-driver-cuda-580.1.1"),
        ({"kernel_packages": ("kernel-devel-{branch}",)}, "rhel9 open 580: no package kernel-devel-{branch}"),
    ],
)
def test_a_wrong_name_is_found_in_dnfs_repositories(change: dict[str, Any], expected: str) -> None:
    rows = nvidia_rows(["rhel9"])
    row = next(r for r in rows if r.flavour == "open" and "580" in r.branches)
    assert expected in set(rpm_differences(row.model_copy(update=change)))


def test_the_container_toolkit() -> None:
    row = CATALOG.container_toolkit
    for repository in (row.repository, f"{row.repository}-arm64", *REPOSITORIES):
        for name in row.packages:
            assert row.version in HELD[repository][name], (repository, name)
    rpm = nvidia_rpm.data()["toolkit_repositories"]
    assert set(row.packages) <= set(rpm["names"])
    assert row.rpm_version in rpm["versions"]


def test_repositories_and_their_keys_lie_where_the_catalog_looks() -> None:
    for name, one in nvidia_data.all_repositories().items():
        machine = {"amd64": "x86_64", "arm64": "aarch64"}[one.architecture]
        row = CATALOG.repository(one.rows_of, machine)
        assert row is not None, name
        key = one.key_place.removeprefix(f"{one.base}/")
        assert (row.base.split("/", 3)[3], row.path, row.suite) == (one.base, f"/{one.path}", "/")
        assert row.key == key


def test_dnfs_repositories_and_their_keys_lie_where_the_catalog_looks() -> None:
    data = nvidia_rpm.data()
    for one in nvidia_rpm.repositories().values():
        row = CATALOG.repository(one.like or one.name, one.architecture)
        assert row is not None
        assert (row.kind, row.base.split("/", 3)[3], row.path) == ("dnf", data["base"], f"/{one.path}")
        assert row.key == f"{one.path}/{one.key}"
    own = data["toolkit_repositories"]
    for machine, path in own["paths"].items():
        row = CATALOG.repository(CATALOG.container_toolkit.rpm_repository, machine)
        assert row is not None
        assert (row.base.split("/", 3)[3], row.path, row.key) == (own["base"], f"/{path}", own["key"])


def test_keys_of_the_catalog_are_named_as_the_real_ones() -> None:
    """NVIDIA names a key's file by the end of its fingerprint."""
    for row in CATALOG.repositories:
        name = row.key.rpartition("/")[2].removesuffix(".pub").upper()
        if name.isalnum() and name != "GPGKEY" and name:
            assert all(fingerprint.endswith(name) for fingerprint in row.fingerprints), row.name
