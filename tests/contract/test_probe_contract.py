"""The node program and the controller's schema say the same, and the program asks nothing of a node but Python 3.8."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from gpustrap.ansible_plugins.module_utils.gpustrap_node import ledger, main, observe
from gpustrap.ansible_plugins.module_utils.gpustrap_node.main import main as ask
from gpustrap.commands.probe import NODE_PACKAGE
from gpustrap.model.facts import Facts
from gpustrap.model.ledger import Kind, Ledger

FILES = sorted(NODE_PACKAGE.glob("*.py"))
TREES = sorted((Path(__file__).parents[1] / "cases" / "facts").glob("*/tree"))
PYTHON_38 = next(
    (p for p in [*Path.home().glob(".pyenv/versions/3.8.*/bin/python"), Path("/usr/bin/python3.8")] if p.exists()), None
)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model in an annotation such as ``tuple[PciFacts, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in get_args(annotation) if (m := model_of(a))), None)


def compare(model: type[BaseModel], answer: dict[str, Any], path: str = "") -> list[str]:
    wrong = [f"{path}{key}: the schema does not know it" for key in answer.keys() - model.model_fields.keys()]
    for name, field in model.model_fields.items():
        inner = model_of(field.annotation)
        if name not in answer:
            wrong.append(f"{path}{name}: the probe does not say it")
        elif inner:
            value = answer[name]
            for one in value if isinstance(value, list) else [value]:
                wrong += compare(inner, one, f"{path}{name}.")
    return wrong


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    return [ask({"verb": "facts", "root": str(tree)})["data"] for tree in TREES] + [ask({"verb": "facts"})["data"]]


def test_probe_says_only_what_the_schema_knows(answers: list[dict[str, Any]]) -> None:
    wrong = {w for answer in answers for w in compare(Facts, answer) if "schema does not know" in w}
    assert not wrong


def test_probe_says_all_the_schema_knows(answers: list[dict[str, Any]]) -> None:
    unsaid = [{w for w in compare(Facts, answer) if "does not say" in w} for answer in answers]
    assert not set.intersection(*unsaid)
    full = [a for a in answers if a["package_manager"]["kind"] == "apt" and a["unattended_upgrades"].get("origins")]
    assert all(not compare(Facts, a) for a in full)


def test_the_richest_machines_say_everything(answers: list[dict[str, Any]]) -> None:
    lists = ("filesystems", "pci", "bridges", "installs")
    for name in lists:
        assert any(answer[name] for answer in answers), f"no recorded machine has {name}"
    assert any(answer["package_manager"].get("sources") for answer in answers)


def test_probe_knows_every_kind_of_resource() -> None:
    assert set(observe.KINDS) == {kind.value for kind in Kind}


def test_an_empty_ledger_of_the_schema_is_taken() -> None:
    made = Ledger.model_validate({"run": {"id": "r1"}, "tool": "0", "lock_digest": "sha256:0"}).model_dump(mode="json")
    assert ledger.check(made) == ""


def test_every_verb_is_answered(tmp_path: Path) -> None:
    for verb in main.VERBS:
        answer = ask({"verb": verb, "root": str(tmp_path), "args": {}})
        assert answer["ok"] or answer["error"]["code"] == "bad-request"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_node_program_is_python_38_and_standard_library_only(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] in sys.stdlib_module_names for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert (node.module or "").split(".")[0] in sys.stdlib_module_names


@pytest.mark.skipif(PYTHON_38 is None, reason="no Python 3.8 here")
@pytest.mark.parametrize("verb", ["facts", "drift", "ledger-read"])
def test_node_program_runs_on_python_38(verb: str) -> None:
    code = f"import json, gpustrap_node.main as m; print(json.dumps(m.main({{'verb': {verb!r}}})))"
    done = subprocess.run(
        [str(PYTHON_38), "-B", "-c", code], cwd=NODE_PACKAGE.parent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert '"ok": true' in done.stdout


def test_files_and_functions_stay_small() -> None:
    for file in FILES:
        text = file.read_text()
        assert len(text.splitlines()) < 400, file.name
