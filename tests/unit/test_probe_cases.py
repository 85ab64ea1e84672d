"""Every recorded machine of tests/cases/facts gives the facts it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import facts
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Completed, Host, Space
from gpustrap.ansible_plugins.module_utils.gpustrap_node.main import tidy
from gpustrap.model.facts import Facts

CASES = sorted(p.parent for p in (Path(__file__).parents[1] / "cases" / "facts").glob("*/expected.json"))


class RecordedHost(Host):
    """A recorded tree that also answers commands and sizes."""

    def __init__(self, case: Path) -> None:
        super().__init__(str(case / "tree"))
        file = case / "recorded.json"
        self.recorded = json.loads(file.read_text()) if file.exists() else {}
        self.is_root = self.recorded.get("root", True)

    def run(self, argv, timeout=10.0):
        answer = self.recorded.get("commands", {}).get(" ".join(argv))
        return answer and Completed(answer.get("rc", 0), answer.get("stdout", ""), answer.get("stderr", ""))

    def clock_error(self):
        return self.recorded.get("clock_error")

    def space(self, path):
        sizes = self.recorded.get("space", {}).get(path)
        return Space(*sizes) if sizes else None


def collect(case: Path) -> dict[str, Any]:
    host = RecordedHost(case)
    return json.loads(json.dumps(tidy(facts.collect(host, {"packages": host.recorded.get("packages", [])}))))


def value(found: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(found, list):
            if int(key) >= len(found):
                return "<missing>"
            found = found[int(key)]
        else:
            found = found.get(key, "<missing>")
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_recorded_machine_gives_expected_facts(case: Path) -> None:
    found = collect(case)
    complete = Facts.model_validate(found).model_dump(mode="json")
    expected = json.loads((case / "expected.json").read_text())
    assert {path: value(complete, path) for path in expected} == expected


def test_there_are_cases() -> None:
    assert len(CASES) >= 15
