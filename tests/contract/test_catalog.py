"""Guards of the catalog: sorted, unique, sourced, strings in quotes."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpustrap.catalog.loader import DIRECTORY, load_catalog
from gpustrap.catalog.schema import Row
from gpustrap.catalog.schema_stack import ControllerPython

FILES = sorted(DIRECTORY.glob("*.yml"))


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
