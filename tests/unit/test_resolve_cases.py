"""Cases of the plan: facts and a request in, choices or refusals out. See tests/cases/plan/README.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.request import Request
from gpustrap.resolve.plan import plan_node

DIRECTORY = Path(__file__).parent.parent / "cases" / "plan"
KEYS = {"title", "facts", "with", "request", "choices", "variables", "reasons", "refused", "says", "never"}
KEYS |= {"roles", "simulated"}
EXPECTATIONS = {"choices", "variables", "reasons", "refused", "roles", "simulated"}


def cases() -> list[Any]:
    found = []
    for path in sorted(DIRECTORY.glob("*.yml")):
        found += [pytest.param(case, id=f"{path.stem}: {case['title']}") for case in yaml.safe_load(path.read_text())]
    return found


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in change.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return {key: value for key, value in result.items() if value is not None}


def facts_of(case: dict[str, Any]) -> Facts:
    base = yaml.safe_load((DIRECTORY / "facts" / f"{case['facts']}.yml").read_text())
    return Facts.model_validate(merged(base, case.get("with", {})))


@pytest.mark.parametrize("case", cases())
def test_case(case: dict[str, Any]) -> None:
    assert case.keys() <= KEYS
    assert case.keys() & EXPECTATIONS, "a case without an expectation proves nothing"
    plan = plan_node("n1", facts_of(case), Request.model_validate(case.get("request", {})), load_catalog())
    result = plan.lock or plan.problems
    if "refused" in case:
        assert not isinstance(result, NodeLock), result
        assert sorted(p.code for p in result) == sorted(case["refused"])
        assert all(p.remedy and p.subject == "node n1" for p in result)
        text = "\n".join(f"{p.message}\n{p.evidence}\n{p.remedy}" for p in result)
        assert case.get("says", "") in text
        assert case.get("never", "\0") not in text
        return
    assert isinstance(result, NodeLock), result
    choices = {c.item: c for c in result.choices}
    values = {name: value for variables in result.roles.values() for name, value in variables.items()}
    assert {item: choices[item].value for item in case.get("choices", {})} == case.get("choices", {})
    assert {name: values[name] for name in case.get("variables", {})} == case.get("variables", {})
    for item, words in case.get("reasons", {}).items():
        assert words in choices[item].reason
    if "roles" in case:
        assert list(result.roles) == case["roles"]
    if "simulated" in case:
        assert [c.item for c in result.choices if c.simulated] == case["simulated"]
