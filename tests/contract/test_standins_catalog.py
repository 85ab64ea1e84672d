"""The catalog against the stand-in of NVIDIA's repositories, which was transcribed without it: names, versions, paths.

A wrong name in the catalog fails here. What differs for a reason stands in KNOWN, with the reason; what no longer
differs must go from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema_gpu import CudaToolkit
from gpustrap.catalog.schema_stack import DriverPackages
from gpustrap.lab.standins import nvidia_data

CATALOG = load_catalog()
REPOSITORIES = nvidia_data.repositories()
# Of the distribution's own archive.
ARCHIVE = {"infiniband-diags"}

UNREAD_620 = "no exact version of 620 was read anywhere, so the stand-in has none; the catalog's rows are recalled"
KNOWN = {
    **{f"{name} open 620: no such branch": UNREAD_620 for name in REPOSITORIES},
    "debian13 open 580: no such branch": "NVIDIA/cuda-repo-management#38: not there; the catalog's row is recalled",
    "debian13 proprietary 580: no such branch": "as open 580",
}


def held(repository: str) -> dict[str, set[str]]:
    """Name -> versions of all that a stand-in repository has."""
    found = defaultdict(set)
    for package in nvidia_data.packages(repository):
        found[package.name].add(package.version)
    return found


HELD = {name: held(name) for name in (*REPOSITORIES, nvidia_data.TOOLKIT)}


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


def nvidia_rows() -> list[DriverPackages]:
    return [row for row in CATALOG.driver_packages if row.origin == "nvidia" and row.repository in REPOSITORIES]


def test_every_name_and_version_of_the_catalog_is_there() -> None:
    rows = nvidia_rows()
    assert {row.repository for row in rows} == set(REPOSITORIES)
    found = {text for row in rows for text in driver_differences(row)}
    found |= {text for toolkit in CATALOG.cuda.toolkits for text in toolkit_differences(toolkit)}
    found |= set(library_differences())
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


def test_the_container_toolkit() -> None:
    row = CATALOG.container_toolkit
    for repository in (row.repository, *REPOSITORIES):
        for name in row.packages:
            assert row.version in HELD[repository][name], (repository, name)


def test_repositories_and_their_keys_lie_where_the_catalog_looks() -> None:
    data = nvidia_data.base()
    toolkit = data["toolkit_repository"]
    expected = {row["name"]: (data["base"], row["path"], f"{row['path']}/{row['key']}") for row in data["repositories"]}
    expected["container-toolkit"] = (toolkit["base"], toolkit["path"], toolkit["key"])
    for name, (base, path, key) in expected.items():
        row = CATALOG.repository(name, "x86_64")
        assert row is not None
        assert (row.base.split("/", 3)[3], row.path, row.key, row.suite) == (base, f"/{path}", key, "/")
