"""Cases of the plan: facts and a request in, choices or refusals out. See tests/cases/plan/README.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.facts import Facts, PciFacts
from gpustrap.model.lock import NodeLock
from gpustrap.model.plan import NodePlan
from gpustrap.model.request import Request
from gpustrap.model.roles import SITE_ORDER
from gpustrap.resolve.plan import plan_node

DIRECTORY = Path(__file__).parent.parent / "cases" / "plan"
SYSTEM = {"facts", "kernel", "gpus", "nvswitches", "secure_boot", "there", "with"}
FOUND = {"findings", "no_findings", "says", "never"}
LOCKED = {"driver", "choices", "reasons", "sources", "variables", "holds", "roles", "pending", "lacks"}
LOCKED |= {"simulated", "recalled"}
KEYS = {"title", "request", "offline", "refused"} | SYSTEM | FOUND | LOCKED
NO_FACTS = {"every", "archives"}  # what the others stand on
NVIDIA, ROOMY_BAR = "10de", 512 << 30


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
def parsed(name: str) -> dict[str, Any]:
    """A file of facts/."""
    content: dict[str, Any] = yaml.safe_load((DIRECTORY / "facts" / f"{name}.yml").read_text())
    return content


def read(name: str) -> dict[str, Any]:
    """A file of facts/ upon the one it names as its base, and all upon every.yml."""
    facts = dict(parsed(name))
    base = facts.pop("base", "" if name == "every" else "every")
    return merged(read(base), facts) if base else facts


def facts_of(case: dict[str, Any]) -> Facts:
    facts = read(case["facts"])
    if kernel := case.get("kernel"):
        facts["kernel"] = {"running": kernel, "installed": [kernel], "headers": [kernel]}
    if archive := facts.pop("archive", None):
        facts = merged({"package_manager": in_archive(archive, facts["kernel"]["running"])}, facts)
    facts["pci"] = pci_of(case)
    if "secure_boot" in case:
        facts["secure_boot"] = {"enabled": case["secure_boot"], "source": "efivar"}
    if there := case.get("there"):
        facts = merged(driver_there(there, [p["address"] for p in facts["pci"]]), facts)
        facts["pci"] = [pci | {"driver": pci.get("driver", "nvidia")} for pci in facts["pci"]]
    return Facts.model_validate(merged(facts, case.get("with", {})))


def in_archive(archive: dict[str, Any], kernel: str) -> dict[str, Any]:
    """What apt knows of the driver's packages in the distribution's own archive."""
    names = parsed("archives")[archive["names"]]
    flavour = re.sub(r"^[^-]+-([1-9]\d*-)?", "", kernel)
    candidates: dict[str, str] = {}
    for branch, version in archive["drivers"].items():
        fields = {"branch": branch, "kernel": kernel, "flavour": flavour, "hwe": archive.get("hwe", "")}
        candidates |= {name.format(**fields): version for name in names["drivers"]}
        if flavour in names["flavours"]:
            candidates |= {name.format(**fields): kernel.removesuffix(f"-{flavour}") for name in names["kernels"]}
    return {
        "candidates": candidates,
        "candidate_origins": dict.fromkeys(candidates, archive["origin"]),
        "versions": {name: [version] for name, version in candidates.items()},
    }


def pci_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """PCI devices of ``10de:2204 x 4``, or of a mapping with ``id``, ``count`` and whatever else facts know of one."""
    found = []
    for entry in case.get("gpus", []):
        row = dict(entry) if isinstance(entry, dict) else {"id": entry}
        text, _, count = row.pop("id").partition(" x ")
        vendor, device = text.split(":")
        link = {"link_width": 16, "link_width_max": 16, "link_speed": 16.0, "link_speed_max": 16.0}
        row = {"pci_class": "0302", "bars": [16 << 20, ROOMY_BAR, 32 << 20], **link, **row}
        found += [row | {"vendor": vendor, "device": device}] * int(count or 1)
    found += [{"vendor": NVIDIA, "device": "22a3", "pci_class": "0680"}] * case.get("nvswitches", 0)
    return [{"address": f"0000:{number:02x}:00.0"} | row for number, row in enumerate(found, 1)]


def driver_there(there: dict[str, Any], addresses: list[str]) -> dict[str, Any]:
    """A driver that runs, and where its packages are from; without packages nobody knows who put it there."""
    version, packages = there["version"], there.get("packages", {})
    installs = [{"what": "nvidia-driver", "version": version, "origin": "loaded module"}]
    installs += [{"what": "nvidia-driver", "version": v, "origin": f"package {n}"} for n, v in packages.items()]
    return {
        "nvidia": {"module": version, "flavour": there["flavour"], "bound": addresses, "nvml": addresses},
        "installs": installs,
        "package_manager": {
            "packages": packages,
            "candidates": packages,
            "installed_origins": dict.fromkeys(packages, there.get("origin", "")),
            "versions": {name: [version] for name, version in packages.items()},
        },
    }


@pytest.mark.parametrize("case", cases())
def test_case(case: dict[str, Any], author: Any) -> None:
    check_words(case, author)
    request = author.built("request", lambda: Request.model_validate(case.get("request", {})))
    facts = author.built("the node's facts:", lambda: facts_of(case))
    author.facts("with", case.get("with", {}), facts.model_dump())
    plan = plan_node("n1", facts, request, load_catalog(), offline=case.get("offline", False))
    check_findings(case, plan)
    if "refused" in case:
        check_refusal(case, plan)
    else:
        assert plan.lock, plan.problems
        check_names(case, plan.lock, author)
        check_lock(case, plan.lock)


def check_words(case: dict[str, Any], author: Any) -> None:
    """What its author misspelt is told in a sentence, and never taken as said."""
    author.known("it", case, KEYS)
    for missing in {"title", "facts"} - case.keys():
        author.wrong(f"it has no {missing}")
    if not case.keys() & (LOCKED | FOUND | {"refused"}):
        author.wrong("it expects nothing, so it proves nothing")
    author.known("facts", [case["facts"]], {path.stem for path in (DIRECTORY / "facts").glob("*.yml")} - NO_FACTS)
    author.known("request", case.get("request", {}), Request.model_fields.keys())
    author.known("there", case.get("there", {}), {"version", "flavour", "packages", "origin"})
    for device in [entry["id"] if isinstance(entry, dict) else entry for entry in case.get("gpus", [])]:
        if not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}( x [1-9]\d*)?", device):
            author.wrong(f"gpus has {device}, which is no PCI id with a count, as 10de:2204 x 4 is")
    for entry in case.get("gpus", []):
        author.known("gpus", entry if isinstance(entry, dict) else (), {"id", *PciFacts.model_fields})
    for place in ("findings", "no_findings", "refused"):
        author.codes(place, case.get(place, []))


def check_names(case: dict[str, Any], lock: NodeLock, author: Any) -> None:
    """Choices and variables that a plan does not have cannot be looked at."""
    items = {choice.item for choice in lock.choices}
    variables = {name for values in (lock.roles | lock.pending).values() for name in values}
    for place in ("reasons", "sources"):
        author.known(place, case.get(place, {}), items)
    for place in ("variables", "holds"):
        author.known(place, case.get(place, {}), variables)
    for place in ("roles", "pending", "lacks"):
        author.known(place, case.get(place, []), SITE_ORDER)


def check_findings(case: dict[str, Any], plan: NodePlan) -> None:
    codes = {f.code for f in plan.findings}
    assert set(case.get("findings", [])) <= codes
    assert not codes & set(case.get("no_findings", []))
    said = [(p.message, p.evidence, p.remedy) for p in plan.problems]
    said += [(f.message, f.evidence, f.advice) for f in plan.findings]
    text = "\n".join(line for lines in said for line in lines)
    assert case.get("says", "") in text
    assert case.get("never", "\0") not in text


def check_refusal(case: dict[str, Any], plan: NodePlan) -> None:
    assert plan.lock is None
    assert sorted(p.code for p in plan.problems) == sorted(case["refused"]), plan.problems
    assert all(p.remedy and p.subject == "node n1" for p in plan.problems)


def check_lock(case: dict[str, Any], lock: NodeLock) -> None:
    choices = {c.item: c for c in lock.choices}
    values = {n: value for variables in (lock.roles | lock.pending).values() for n, value in variables.items()}
    expected = case.get("choices", {})
    assert {item: choices[item].value if item in choices else None for item in expected} == expected
    assert {name: values[name] for name in case.get("variables", {})} == case.get("variables", {})
    if "driver" in case:
        assert " ".join(values[f"nvidia_driver_{key}"] for key in ("branch", "flavour", "origin")) == case["driver"]
    for name, words in case.get("holds", {}).items():
        assert words in str(values[name])
    for item, words in case.get("reasons", {}).items():
        assert words in choices[item].reason
    for item, words in case.get("sources", {}).items():
        assert words in choices[item].source
    if "roles" in case:
        assert list(lock.roles) == case["roles"]
    if "pending" in case:
        assert list(lock.pending) == case["pending"]
    assert not set(case.get("lacks", [])) & (lock.roles | lock.pending).keys()
    if "simulated" in case:
        assert [c.item for c in lock.choices if c.simulated] == case["simulated"]
    if "recalled" in case:
        assert set(case["recalled"]) <= {c.item for c in lock.choices if c.confidence == "recalled"}


GOOD = {"title": "t", "facts": "ubuntu2404", "gpus": ["10de:2204 x 2"], "findings": []}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fidnings": []}, "fidnings, which nothing here is called; did you mean findings"),
        ({"findings": ["gpus-mixd"]}, "findings has gpus-mixd, .*did you mean gpus-mixed"),
        ({"no_findings": ["bar-unasigned"]}, "did you mean bar-unassigned"),
        ({"refused": ["gpu-incompatible"]}, "did you mean gpus-incompatible"),
        ({"facts": "ubuntu2405"}, "facts has ubuntu2405, .*did you mean ubuntu2404"),
        ({"facts": "every"}, "facts has every, "),
        ({"request": {"driver_brnach": "580"}}, "request has driver_brnach, .*did you mean driver_branch"),
        ({"request": {"gpustrap_docker": False}}, "did you mean docker"),
        ({"gpus": ["10de2204"]}, "gpus has 10de2204, which is no PCI id"),
        ({"gpus": [{"id": "10de:2204", "drivers": "vfio-pci"}]}, "gpus has drivers, .*did you mean driver"),
        ({"there": {"versions": "1"}}, "did you mean version"),
        ({"title": None}, "it has no title"),
        ({"findings": None}, "it expects nothing"),
    ],
)
def test_what_the_author_of_a_case_misspells_is_told_in_a_sentence(
    change: dict[str, Any], said: str, author: Any
) -> None:
    check_words(GOOD, author)
    case = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(pytest.fail.Exception, match=said):
        check_words(case, author)


@pytest.mark.parametrize("place", ["request", "with"])
def test_what_a_model_refuses_is_told_with_its_place(place: str, author: Any) -> None:
    wrong = {"request": {"docker": "maybe"}, "with": {"kernel": {"running": ["6.8"]}}}[place]
    build = {"request": lambda: Request.model_validate(wrong), "with": lambda: facts_of(GOOD | {"with": wrong})}[place]
    with pytest.raises(pytest.fail.Exception, match=rf"{place} {next(iter(wrong))}\b.*: Input should") as caught:
        author.built(place, build)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["runnings"])
def test_facts_that_no_node_has_are_told(wrong: str, author: Any) -> None:
    facts = facts_of(GOOD).model_dump()
    author.facts("with", {"kernel": {"running": "6.8", "headers": None}}, facts)
    with pytest.raises(pytest.fail.Exception, match=r"with kernel has runnings, .*did you mean running"):
        author.facts("with", {"kernel": {wrong: "6.8"}}, facts)


@pytest.mark.parametrize("place", ["reasons", "sources", "variables", "holds", "roles", "pending", "lacks"])
def test_names_that_no_plan_has_are_told(place: str, author: Any) -> None:
    plan = plan_node("n1", facts_of(GOOD), Request(), load_catalog())
    assert plan.lock
    with pytest.raises(pytest.fail.Exception, match=f"{place} has drivers"):
        check_names({place: {"drivers": "x"}}, plan.lock, author)
