"""Cases of the plan: facts and a request in, choices or refusals out. See tests/cases/plan/README.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.plan import NodePlan
from gpustrap.model.request import Request
from gpustrap.resolve.plan import plan_node

DIRECTORY = Path(__file__).parent.parent / "cases" / "plan"
SYSTEM = {"facts", "kernel", "gpus", "nvswitches", "secure_boot", "there", "with"}
FOUND = {"findings", "no_findings", "says", "never"}
LOCKED = {"driver", "choices", "reasons", "sources", "variables", "holds", "roles", "pending", "lacks"}
LOCKED |= {"simulated", "recalled"}
KEYS = {"title", "request", "offline", "refused"} | SYSTEM | FOUND | LOCKED
NVIDIA, ROOMY_BAR = "10de", 512 << 30


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
def test_case(case: dict[str, Any]) -> None:
    assert case.keys() <= KEYS
    assert case.keys() & (LOCKED | FOUND | {"refused"}), "a case without an expectation proves nothing"
    request = Request.model_validate(case.get("request", {}))
    plan = plan_node("n1", facts_of(case), request, load_catalog(), offline=case.get("offline", False))
    check_findings(case, plan)
    if "refused" in case:
        check_refusal(case, plan)
    else:
        assert plan.lock, plan.problems
        check_lock(case, plan.lock)


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
    assert not set(case.get("lacks", [])) & lock.pending.keys()
    if "simulated" in case:
        assert [c.item for c in lock.choices if c.simulated] == case["simulated"]
    if "recalled" in case:
        assert set(case["recalled"]) <= {c.item for c in lock.choices if c.confidence == "recalled"}
