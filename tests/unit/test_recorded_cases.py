"""Cases of facts that a person wrote. See tests/cases/recorded/README.md."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from gpustrap.catalog.loader import load_catalog
from gpustrap.commands.plan_offline import plan_from_facts
from gpustrap.commands.recorded import EXAMPLES, ShapeError, _model_in, read_recorded
from gpustrap.content import content_root
from gpustrap.model.facts import Facts

DIRECTORY = Path(__file__).parent.parent / "cases" / "recorded"
BASE = {
    "os": {"id": "ubuntu", "version_id": "24.04", "architecture": "x86_64"},
    "kernel": {"running": "6.8.0-60-generic"},
}


def cases() -> list[Any]:
    found = []
    for path in sorted(DIRECTORY.glob("*.yml")):
        found += [pytest.param(case, id=f"{path.stem}: {case['title']}") for case in yaml.safe_load(path.read_text())]
    return found


@pytest.mark.parametrize("case", cases())
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    assert case.keys() <= {"title", "facts", "gpus", "findings", "no_findings", "says", "broken", "way"}
    facts = {key: value for key, value in (BASE | case["facts"]).items() if value is not None}
    path = tmp_path / "box.yml"
    path.write_text(yaml.safe_dump(facts, sort_keys=False))
    planned = plan_from_facts([str(path)], stdin=io.BytesIO())
    if "broken" in case:
        (problem,) = planned.problems
        assert (problem.code, planned.plans) == ("facts-broken", {})
        assert case["broken"] in f"{problem.message}\n{problem.evidence}"
        assert case["way"] in problem.remedy
        return
    plan = planned.plans["box"]
    assert plan.lock, plan.problems
    if "gpus" in case:
        assert [c.value for c in plan.lock.choices if c.item == "gpus"] == [case["gpus"]]
    codes = [finding.code for finding in plan.findings]
    assert set(case.get("findings", [])) <= set(codes)
    assert not set(codes) & set(case.get("no_findings", []))
    assert case.get("says", "") in "\n".join(f"{f.message} {f.advice}" for f in plan.findings)


def required(model: type[BaseModel], where: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        inner = _model_in(field.annotation)
        found += [f"{where}{name}"] if field.is_required() else []
        found += required(inner, f"{where}{name}.") if inner else []
    return found


def test_every_key_that_facts_must_have_has_an_example() -> None:
    assert set(required(Facts)) <= EXAMPLES.keys()
    whole: dict[str, Any] = {key: EXAMPLES[key] for key in EXAMPLES if "." not in key}
    assert Facts.model_validate(whole).gpus[0].device == EXAMPLES["pci.device"]


def test_the_example_of_the_page_works_and_is_all_known(tmp_path: Path) -> None:
    page = (Path(content_root()) / "docs" / "plan.md").read_text(encoding="utf-8")
    section = page.partition("## Machines that are not here")[2].partition("\n## ")[0]
    example = section.partition("```yaml\n")[2].partition("```")[0]
    path = tmp_path / "box.yml"
    path.write_text(example)
    planned = plan_from_facts([str(path)], stdin=io.BytesIO())
    plan = planned.plans["box"]
    assert plan.lock, planned.problems
    assert [c.value for c in plan.lock.choices if c.item == "gpus"] == ["2 x GeForce RTX 3090"]
    assert not {f.code for f in plan.findings} & {"facts-not-known", "pci-class-missing"}


KEYS = st.sampled_from(
    [*Facts.model_fields, "kernal", "vendor", "device", "pci_class", "id", "architecture", "kind", ""]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["10de:2204", ":"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS | st.integers(), VALUES, max_size=5))
def test_whatever_a_file_holds_is_facts_or_a_mistake_with_a_way_out(change: dict[Any, Any]) -> None:
    mistakes = None
    try:
        read_recorded(BASE | change, load_catalog())
    except ShapeError as error:
        mistakes = error
    assert not mistakes or (mistakes.evidence and mistakes.remedy)
