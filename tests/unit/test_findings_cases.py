"""Cases of findings: a node and what was decided in, codes and words out. See tests/cases/findings/README.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.catalog.loader import load_catalog
from gpustrap.errors import Problem
from gpustrap.model.facts import Facts, PciFacts
from gpustrap.model.plan import Finding
from gpustrap.model.request import Request
from gpustrap.resolve.gpu.boards import node_gpus
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.parts import Inputs
from gpustrap.resolve.preflight.all import look

DIRECTORY = Path(__file__).parent.parent / "cases" / "findings"
PREFLIGHT = Path(__file__).parent.parent.parent / "src" / "gpustrap" / "resolve" / "preflight"
KEYS = {"title", "facts", "with", "every_gpu", "gpus", "request", "driver", "disk", "expect", "says", "never"}
KINDS = {"note", "warning", "refusal"}
DRIVER = "580 open distribution prebuilt"
GIB = 1024**3


def cases() -> list[Any]:
    found = []
    for path in sorted(DIRECTORY.glob("*.yml")):
        with path.open() as text:
            rows = yaml.safe_load(text)
        found += [pytest.param(case, id=f"{path.stem}: {case.get('title', 'without a title')}") for case in rows]
    return found


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in change.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return {key: value for key, value in result.items() if value is not None}


@cache
def healthy(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = yaml.safe_load((DIRECTORY / "facts" / f"{name}.yml").read_text())
    return facts


def facts_of(case: dict[str, Any]) -> Facts:
    facts = merged(healthy(case["facts"]), case.get("with", {}))
    facts["pci"] = list(facts["pci"])
    for place, change in sorted(case.get("gpus", {}).items()):
        if place == len(facts["pci"]):
            facts["pci"].append(facts["pci"][0])
        facts["pci"][place] = merged(facts["pci"][place], change)
    facts["pci"] = [merged(gpu, case.get("every_gpu", {})) for gpu in facts["pci"]]
    return Facts.model_validate(facts)


def inputs_of(facts: Facts, request: dict[str, Any]) -> Inputs:
    catalog = load_catalog()
    distro = catalog.distro(facts.os.id, facts.os.version_id)
    assert distro
    return Inputs("n1", facts, Request.model_validate(request), catalog, distro, None, False, frozenset())


def driver_of(inputs: Inputs, words: str) -> Driver | None:
    """``580 open nvidia dkms kept``; versions are made up, packages are those that a plan chooses anew."""
    if words == "none":
        return None
    name, flavour, origin, module, *kept = words.split()
    branch = inputs.catalog.driver(name)
    row = next(
        r
        for r in inputs.catalog.driver_packages
        if (r.flavour, r.origin, r.module) == (flavour, origin, module)
        and inputs.distro.key in r.distros
        and name in r.branches
        and not r.only_kept
    )
    assert branch
    return Driver(branch, row, f"{name}.95.05", f"{name}.95.05-1", kept=kept == ["kept"])


def seen_in(case: dict[str, Any]) -> tuple[tuple[Problem, ...], tuple[Finding, ...]]:
    inputs = inputs_of(facts_of(case), case.get("request", {}))
    driver = driver_of(inputs, case.get("driver", DRIVER))
    disk = {directory: int(gib * GIB) for directory, gib in case.get("disk", {}).items()}
    part = look(inputs, node_gpus(inputs.facts, inputs.catalog), driver, disk)
    return part.problems, part.findings


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("case", cases())
def test_case(case: dict[str, Any], author: Any) -> None:
    check_words(case, author)
    problems, findings = author.built("the node's facts:", lambda: seen_in(case))
    found = sorted([(p.code, "refusal") for p in problems] + [(f.code, f.severity) for f in findings])
    wanted = [(code, severity) for code, severities in case["expect"].items() for severity in as_list(severities)]
    assert found == sorted(wanted)
    texts: dict[str, str] = {}
    for problem in problems:
        texts[problem.code] = texts.get(problem.code, "") + "\n".join(
            (problem.message, problem.evidence, problem.remedy)
        )
    for finding in findings:
        texts[finding.code] = texts.get(finding.code, "") + "\n".join(
            (finding.subject, finding.message, finding.evidence, finding.advice)
        )
    for code, words in case.get("says", {}).items():
        assert [w for w in as_list(words) if w not in texts[code]] == [], texts[code]
    assert not [w for w in as_list(case.get("never", [])) if any(w in text for text in texts.values())]


def check_words(case: dict[str, Any], author: Any) -> None:
    """What its author misspelt is told in a sentence, and never taken as said."""
    author.known("it", case, KEYS)
    for missing in {"title", "facts", "expect"} - case.keys():
        author.wrong(f"it has no {missing}")
    author.known("facts", [case["facts"]], {path.stem for path in (DIRECTORY / "facts").glob("*.yml")})
    author.known("request", case.get("request", {}), Request.model_fields.keys())
    author.built("request", lambda: Request.model_validate(case.get("request", {})))
    author.codes("expect", case["expect"])
    author.known("expect", [kind for kinds in case["expect"].values() for kind in as_list(kinds)], KINDS)
    author.known("says", case.get("says", {}), case["expect"])
    check_node(case, author)


def check_node(case: dict[str, Any], author: Any) -> None:
    words = case.get("driver", DRIVER)
    facts = author.built("the node's facts:", lambda: facts_of(case))
    author.facts("with", case.get("with", {}), facts.model_dump())
    for change in (case.get("every_gpu", {}), *case.get("gpus", {}).values()):
        author.known("a GPU", change, PciFacts.model_fields)
    inputs = inputs_of(facts, case.get("request", {}))
    try:
        driver_of(inputs, words)
    except (ValueError, StopIteration):
        author.wrong(f"driver is {words}, which {inputs.distro.name} has not; it is written as {DRIVER}")


@pytest.mark.parametrize("case", cases())
def test_everything_seen_is_a_sentence_with_evidence_and_a_next_step(case: dict[str, Any]) -> None:
    problems, findings = seen_in(case)
    sentences = [p.message for p in problems] + [f.message for f in findings]
    assert all(s and "\n" not in s and not s.endswith(".") for s in sentences)
    assert all(p.evidence and p.remedy for p in problems)
    assert all(f.evidence and f.advice for f in findings)
    order = [f.severity for f in findings]
    assert order == sorted(order, reverse=True), "warnings come first"


def test_every_look_has_a_case() -> None:
    """A code without a case is a claim that nobody has tried."""
    said = {code for param in cases() for code in param.values[0]["expect"]}
    emitted = {
        code
        for path in PREFLIGHT.glob("*.py")
        for code in re.findall(r"\b(?:note|warning|problem)\(\s*\"([a-z0-9-]+)\"", path.read_text())
    }
    assert emitted
    assert emitted == said


GOOD = {"title": "t", "facts": "ubuntu2404", "expect": {"gpus-mixed": "note"}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"requests": {}}, "did you mean request"),
        ({"facts": "ubuntu2405"}, "did you mean ubuntu2404"),
        ({"expect": {"gpus-mixd": "note"}}, "did you mean gpus-mixed"),
        ({"expect": {"gpus-mixed": "notice"}}, "did you mean note"),
        ({"says": {"gpu-mixed": "x"}}, "says has gpu-mixed"),
        ({"request": {"driver_brnach": "580"}}, "did you mean driver_branch"),
        ({"request": {"docker": "maybe"}}, "request docker: "),
        ({"with": {"kernel": {"runnings": "x"}}}, "with kernel has runnings, .*did you mean running"),
        ({"every_gpu": {"drivers": "x"}}, "a GPU has drivers"),
        ({"driver": "580 open nvidia"}, "driver is 580 open nvidia, which Ubuntu 24.04 has not"),
        ({"driver": "999 open nvidia dkms"}, "driver is 999"),
        ({"expect": None}, "it has no expect"),
    ],
)
def test_what_the_author_of_a_case_misspells_is_told_in_a_sentence(
    change: dict[str, Any], said: str, author: Any
) -> None:
    check_words(GOOD, author)
    case = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(pytest.fail.Exception, match=said):
        check_words(case, author)
