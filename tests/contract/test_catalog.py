"""Guards of the catalog: sorted, unique, sourced, strings in quotes, references that lead somewhere."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpustrap.catalog.check import faults
from gpustrap.catalog.loader import DIRECTORY, load_catalog
from gpustrap.catalog.row import Row
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_gpu import Architecture
from gpustrap.catalog.schema_stack import ControllerPython
from gpustrap.catalog.topics import TOPICS, entries

FILES = sorted(DIRECTORY.glob("*.yml"))
BARE = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:bool"}
FROM_MEMORY = re.compile(r"memory|was not read|were not read|recalled|unverified|not verified")


def scalars(node: Node) -> list[ScalarNode]:
    """Every value, without keys."""
    if isinstance(node, MappingNode):
        return [s for _key, value in node.value for s in scalars(value)]
    if isinstance(node, SequenceNode):
        return [s for item in node.value for s in scalars(item)]
    return [node] if isinstance(node, ScalarNode) else []


def rows(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, list):
        return [row for item in data for row in rows(item)]
    if isinstance(data, dict):
        inner = [row for value in data.values() for row in rows(value)]
        return [*([data] if "source" in data else []), *inner]
    return []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_string_is_quoted(path: Any) -> None:
    """A bare ``no`` is false to YAML. A bare 24.10 is 24.1, a number: the schema takes none where it wants text."""
    numbers = {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:float", "tag:yaml.org,2002:int"}
    nodes = scalars(yaml.compose(path.read_text()))
    assert not [s.value for s in nodes if s.style != '"' and s.tag not in numbers]


def test_a_number_where_text_is_wanted_is_refused() -> None:
    row = {"ansible_core": 2.20, "node_python_max": "3.14", "source": "a test, no more", "checked": "2026-11-30"}
    with pytest.raises(ValueError, match="valid string"):
        ControllerPython.model_validate(row | {"confidence": "verified"})


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_row_is_dated_and_not_from_the_future(path: Any) -> None:
    found = rows(yaml.safe_load(path.read_text()))
    assert found
    assert all(date.fromisoformat(row["checked"]) <= date.today() for row in found)  # noqa: DTZ011
    assert all(len(row["source"]) >= 10 for row in found)


def test_rows_are_sorted_and_unique() -> None:
    catalog = load_catalog()
    for keys in (
        [(d.id, d.version_id) for d in catalog.distros],
        [(c.distribution, c.architecture) for c in catalog.conda],
        list(catalog.docker.upstream.packages),
        list(catalog.docker.conflicts.distribution),
        list(catalog.docker.conflicts.upstream),
        *(list(d.docker_packages) for d in catalog.distros),
    ):
        assert keys == sorted(set(keys))


def test_rows_fit_together() -> None:
    catalog = load_catalog()
    known = {d.key for d in catalog.distros}
    assert set(catalog.docker.upstream.seen_on) <= known
    assert {d.time_sync for d in catalog.distros} <= set(catalog.server.time_sync.packages)
    assert {c.architecture for c in catalog.conda} == set(catalog.server.architectures.names)
    own = {p for d in catalog.distros for p in d.docker_packages}
    assert not own & set(catalog.docker.conflicts.distribution)
    assert not set(catalog.docker.upstream.packages) & set(catalog.docker.conflicts.upstream)
    assert own <= set(catalog.docker.conflicts.upstream)
    for distro in catalog.distros:
        for version in map(distro.fill, catalog.docker.upstream.packages.values()):
            assert re.fullmatch(r"[0-9][A-Za-z0-9.+:~-]*", version)


def test_installers_are_pinned_over_https_or_unknown() -> None:
    for row in load_catalog().conda:
        assert bool(row.url) == bool(row.version)
        assert not row.url or (
            row.url.startswith("https://") and row.version in row.url and row.architecture in row.url
        )


def test_keys_are_whole_fingerprints() -> None:
    assert all(re.fullmatch(r"[0-9A-F]{40}", f) for f in load_catalog().docker.upstream.fingerprints)


def test_a_row_without_a_source_is_refused() -> None:
    with pytest.raises(ValueError, match="source"):
        Row.model_validate({"checked": "2026-11-30", "confidence": "verified"})


def test_the_digest_names_the_content() -> None:
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", load_catalog().digest)


def test_every_reference_leads_somewhere() -> None:
    assert faults(load_catalog()) == ()


def test_every_file_is_a_topic_and_every_row_is_found() -> None:
    """A row that nobody walks over is never called recalled or old."""
    catalog = load_catalog()
    assert sorted(TOPICS) == [path.stem for path in FILES]
    fields = {f.name for f in dataclasses.fields(Catalog)} - {"digest"}
    assert {field for of_topic in TOPICS.values() for field in of_topic} == fields
    found = entries(catalog)
    for path in FILES:
        written = rows(yaml.safe_load(path.read_text()))
        assert len([e for e in found if e.topic == path.stem]) == len(written), path.name
    assert len({(e.topic, e.name) for e in found}) == len(found), "two rows have one name"


def test_what_was_not_read_is_called_recalled() -> None:
    said = [e for e in entries(load_catalog()) if FROM_MEMORY.search(e.row.source)]
    assert [(e.topic, e.name) for e in said if not e.recalled] == []


def test_no_gpu_is_lost() -> None:
    catalog = load_catalog()
    assert len(catalog.gpus) >= 157
    assert len({device for gpu in catalog.gpus for device in gpu.ids}) >= 185


def test_flavours_are_what_the_generation_allows() -> None:
    """Without a GSP no open modules; since Blackwell, and beside a Grace CPU, nothing else."""
    for architecture in load_catalog().architectures:
        lowest = min(float(c) for c in architecture.compute_capabilities)
        if lowest < 7.5:
            assert architecture.flavours == ("proprietary",), architecture.name
        elif lowest >= 10 or architecture.name == "Grace Hopper":
            assert architecture.flavours == ("open",), architecture.name
        else:
            assert set(architecture.flavours) == {"open", "proprietary"}, architecture.name
    assert load_catalog().architecture("Hopper").open_only_on == ("aarch64",)


def test_branches_lose_what_nvidia_took_away() -> None:
    for branch in load_catalog().drivers:
        number = int(branch.branch)
        assert ("proprietary" in branch.flavours) == (number < 615), branch.branch
        assert ("open" in branch.flavours) == (number >= 515), branch.branch
        assert ("Pascal" in branch.architectures) == (number <= 580), branch.branch
        assert ("Kepler" in branch.architectures) == (number <= 470), branch.branch


def test_cuda_13_has_nothing_for_less_than_7_5() -> None:
    catalog = load_catalog()
    for toolkit in catalog.cuda.toolkits:
        assert (float(toolkit.compute_min) < 7.5) == (int(toolkit.version.partition(".")[0]) < 13), toolkit.version
    assert all(float(lib.compute_min) >= 7.5 for lib in catalog.libraries if lib.cuda_major == "13")


def test_boards_that_share_an_id_are_told_apart_where_that_can_be() -> None:
    catalog = load_catalog()
    assert [g.name for g in catalog.boards("25b6", "157e")] == ["A2"]
    assert [g.name for g in catalog.boards("25b6", "14a9")] == ["A16"]
    assert {g.name for g in catalog.boards("25b6", "ffff")} == {"A2", "A16"}
    assert {g.name for g in catalog.boards("1e30")} == {"Quadro RTX 6000", "Quadro RTX 8000"}


def _with(catalog: Catalog, field: str, index: int, **changes: Any) -> Catalog:
    rows = list(getattr(catalog, field))
    rows[index] = rows[index].model_copy(update=changes)
    return dataclasses.replace(catalog, **{field: tuple(rows)})


def _toolkit(catalog: Catalog, **changes: Any) -> Catalog:
    toolkits = (catalog.cuda.toolkits[0].model_copy(update=changes), *catalog.cuda.toolkits[1:])
    return dataclasses.replace(catalog, cuda=catalog.cuda.model_copy(update={"toolkits": toolkits}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda c: _with(c, "gpus", 5, architecture="Amper"), "architecture Amper is not in the catalog"),
        (lambda c: _with(c, "gpus", 5, compute_capability="9.9"), "compute capability 9.9 is none of"),
        (lambda c: _with(c, "gpus", 5, ids=("0001",)), "id 0001 lies in no range of"),
        (lambda c: _with(c, "gpus", 5, ids=("ffff",)), "id ffff lies in no range of"),
        (lambda c: _with(c, "gpus", 5, name=c.gpus[4].name), "stands there twice"),
        (lambda c: _with(c, "gpus", 5, driver_min="999"), "branch 999 is not in the catalog"),
        (lambda c: dataclasses.replace(c, gpus=c.gpus[::-1]), "stands behind"),
        (lambda c: _with(c, "id_ranges", 1, first="1341"), "does not begin where the range before it ends"),
        (lambda c: _with(c, "id_ranges", 1, architectures=("Amper",)), "architecture Amper is not in the catalog"),
        (lambda c: _with(c, "architectures", -1, flavours=()), "no branch drives it in one of its flavours"),
        (lambda c: _with(c, "architectures", -1, driver_min="535"), "do not say the same as branch 550"),
        (lambda c: _with(c, "drivers", 1, architectures=("Ampere", "Volta")), "not in the order of gpus"),
        (lambda c: _with(c, "drivers", 1, newest="580.1"), "version 580.1 is of another branch"),
        (lambda c: _with(c, "drivers", 1, kernel_source=""), "come together"),
        (lambda c: _with(c, "drivers", 0, branch="600"), "535 stands behind 600"),
        (lambda c: _toolkit(c, compute=("9.0", "8.0")), "8 0 stands behind 9 0"),
        (lambda c: _toolkit(c, compute=("9.7",)), "compute capability 9.7 is not in the catalog"),
        (lambda c: _toolkit(c, repositories=("sles15",)), "distribution sles15 is not in the catalog"),
        (lambda c: _toolkit(c, newest="12.0.1"), "release 12.0.1 is of another version"),
        (lambda c: _toolkit(c, driver_min="418.1"), "cannot need an older driver"),
        (lambda c: _toolkit(c, version="10.2"), "its major version is not in majors"),
        (lambda c: _with(c, "libraries", 0, cuda_major="14"), "CUDA major 14 is not in the catalog"),
        (lambda c: _with(c, "distros", 0, nvidia="debian99"), "repository debian99 is not in the catalog"),
        (lambda c: _with(c, "driver_packages", 0, distros=("debian 99",)), "distribution debian 99 is not"),
        (lambda c: _with(c, "driver_packages", 0, branches=("999",)), "branch 999 is not in the catalog"),
        (lambda c: _with(c, "driver_packages", 0, branches=("620",), flavour="proprietary"), "no proprietary modules"),
        (lambda c: _with(c, "driver_packages", 0, repository="x"), "repository x is not in the catalog"),
        (lambda c: _with(c, "wheels", 0, cuda="14.0"), "CUDA major 14 is not in the catalog"),
        (lambda c: _with(c, "wheels", 0, driver_min="999"), "branch 999 is not in the catalog"),
    ],
)
def test_damage_is_said(damage: Callable[[Catalog], Catalog], said: str) -> None:
    assert any(said in fault for fault in faults(damage(load_catalog()))), said


def test_a_misspelt_capability_or_id_is_refused() -> None:
    row = {"name": "X", "flavours": ["open"], "source": "somewhere public", "checked": "2026-11-30"}
    with pytest.raises(ValueError, match="compute_capabilities"):
        Architecture.model_validate({**row, "confidence": "verified", "compute_capabilities": ["8.x"]})
