"""docs/plan.schema.json is what `python -m gpustrap.report.plan_json` writes; what the program prints keeps to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gpustrap.content import content_root
from gpustrap.report.plan_json import schema, target

FACTS = Path(__file__).parent.parent / "cases" / "plan" / "facts" / "debian13.yml"
SCHEMA = target(content_root())


def test_the_schema_is_current() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), f"python -m gpustrap.report.plan_json writes {SCHEMA}"
    Draft202012Validator.check_schema(json.loads(schema()))


@pytest.mark.parametrize(
    ("words", "code", "nodes"),
    [
        ([], 0, ["debian13"]),
        (["--set", "gpustrap_docker_address_pools=[0.0.0.0/8, 10.0.0.0/33]"], 2, []),
        (["no-such-file.json"], 2, ["debian13"]),
    ],
)
def test_what_is_printed_keeps_to_it(tmp_path: Path, words: list[str], code: int, nodes: list[str]) -> None:
    sources = [option for word in words if word.endswith(".json") for option in ("--from-facts", word)]
    rest = [word for word in words if not word.endswith(".json")]
    command = [sys.executable, "-m", "gpustrap", "plan", "--from-facts", str(FACTS), *sources, *rest]
    done = subprocess.run(
        [*command, "--format", "json"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    data = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(data)
    assert (done.returncode, data["exit_code"], list(data["nodes"])) == (code, code, nodes)


def test_what_does_not_keep_to_it_is_found() -> None:
    broken = {"version": 1, "nodes": {"n1": {}}, "findings": {}, "reasoning": {}, "changes": [], "problems": []}
    assert list(Draft202012Validator(json.loads(schema())).iter_errors(broken))
