"""daemon.json: only our keys change, and what is no JSON is named by line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpustrap.ansible_plugins.module_utils import gpustrap_json

CASES = Path(__file__).parent.parent / "cases" / "daemon_json"
KEEPS = yaml.safe_load((CASES / "keeps.yml").read_text(encoding="utf-8"))
REFUSED = yaml.safe_load((CASES / "refused.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", KEEPS, ids=lambda case: case["name"])
def test_merge(case):
    merged = gpustrap_json.merge(gpustrap_json.parse(case["existing"].encode()), case["keys"])
    assert merged == case["merged"]
    assert gpustrap_json.merge(gpustrap_json.parse(gpustrap_json.render(merged)), case["keys"]) == merged


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_refused(case):
    data = case["existing_latin1"].encode("latin-1") if "existing_latin1" in case else case["existing"].encode()
    with pytest.raises(gpustrap_json.BadJsonError) as refused:
        gpustrap_json.parse(data)
    assert case["said"] in str(refused.value)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=3), TREES, max_size=4)


def at(tree, pointer):
    for part in pointer.split("/")[1:]:
        tree = tree[part.replace("~1", "/").replace("~0", "~")]
    return tree


@given(OBJECTS, OBJECTS)
def test_ours_is_there_and_nothing_else_changed(existing, ours):
    merged = gpustrap_json.merge(existing, ours)
    for pointer in gpustrap_json.pointers(ours):
        wanted = at(ours, pointer)
        assert at(merged, pointer) == (wanted if wanted != {} else at(merged, pointer))
    assert {k: v for k, v in merged.items() if k not in ours} == {k: v for k, v in existing.items() if k not in ours}
    assert gpustrap_json.merge(merged, ours) == merged


def test_pointers_name_leaves():
    ours = {"log-opts": {"max-size": "1m"}, "a/b": {"c~d": 1}, "list": [1], "empty": {}}
    assert gpustrap_json.pointers(ours) == ["/log-opts/max-size", "/a~1b/c~0d", "/list", "/empty"]
