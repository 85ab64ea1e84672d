"""Cases of the inventory: files in, nodes or problems out. See tests/cases/inventory/README.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.errors import GpustrapError
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Node
from gpustrap.model.site import Site
from gpustrap.site.inventory import load_nodes

DIRECTORY = Path(__file__).parent.parent / "cases" / "inventory"


def make_site(root: Path, files: dict[str, str]) -> Site:
    for name, text in files.items():
        path = root / "inventory" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Site(root)


def holds(node: Node, wanted: dict[str, Any]) -> None:
    request = node.request.model_dump(mode="json", exclude_none=True)
    for name, value in wanted.pop("request", {}).items():
        found = request[name]
        assert {k: found[k] for k in value} == value if isinstance(value, dict) else found == value
    assert [{f.subject: f.message} for f in node.findings] == wanted.pop("findings", [])
    for name, value in wanted.items():
        found = getattr(node.endpoint, name)
        assert (list(found) if isinstance(found, tuple) else found) == value


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.yml")), ids=lambda p: p.stem)
def test_case(path: Path, tmp_path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    site = make_site(tmp_path, case["files"])
    if "problems" not in case:
        nodes = {n.name: n for n in load_nodes(site, case.get("nodes"), case.get("limit"))}
        assert list(nodes) == list(case["found"])
        for name, wanted in case["found"].items():
            holds(nodes[name], wanted)
        return
    with pytest.raises(GpustrapError) as caught:
        load_nodes(site, case.get("nodes"), case.get("limit"))
    problems = sorted(caught.value.problems, key=lambda p: (p.code, p.subject))
    assert [p.code for p in problems] == [p["code"] for p in case["problems"]], problems
    assert caught.value.exit_code is ExitCode.USAGE
    for problem, wanted in zip(problems, case["problems"], strict=True):
        text = f"{problem.message}\n{problem.evidence}\n{problem.remedy}"
        assert wanted["subject"] in problem.subject
        assert wanted["text"] in text
        assert problem.remedy
        assert case.get("never", "\0") not in text + problem.subject
