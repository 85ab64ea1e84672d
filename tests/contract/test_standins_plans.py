"""Every plan of tests/cases/plan against the stand-ins of NVIDIA's repositories: what a lock names can be had there.

That is the whole way from recorded facts to what a role asks apt or dnf for, on x86_64 and on ARM servers. For these
fewer versions were read: names and branches are compared there.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpustrap.catalog import loader
from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.lab.standins import nvidia_data, nvidia_rpm
from gpustrap.model.request import Request
from gpustrap.resolve.plan import plan_node

# Of the distribution's own archive, or EPEL's.
ELSEWHERE = ("infiniband-diags", "linux-headers-", "kernel-")
UNREAD = {
    "ubuntu2204/sbsa": "what is in this repository was not read; the catalog's row is recalled",
}
UNREAD_BRANCHES = {"620": "no exact version of 620 was read anywhere"}


def plan_cases() -> ModuleType:
    """The module that reads the cases of the plan."""
    path = Path(__file__).parent.parent / "unit" / "test_resolve_cases.py"
    spec = importlib.util.spec_from_file_location("plan_cases", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def held() -> dict[str, dict[str, set[str]]]:
    """Path of each repository -> name -> versions."""
    found: dict[str, dict[str, set[str]]] = {}
    for name, one in nvidia_data.all_repositories().items():
        for package in nvidia_data.packages(name):
            found.setdefault(one.path, {}).setdefault(package.name, set()).add(package.version)
    for name, repository in nvidia_rpm.repositories().items():
        for rpm in nvidia_rpm.packages(name):
            versions = found.setdefault(repository.path, {}).setdefault(rpm.name, set())
            versions |= {rpm.version, f"{rpm.version}-{rpm.release}"}
    toolkit = nvidia_rpm.data()["toolkit_repositories"]
    for path in toolkit["paths"].values():
        found[path] = {name: set(toolkit["versions"]) for name in toolkit["names"]}
    return found


def wanted(roles: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Repository, name and version of every package that roles of a lock take from NVIDIA."""
    for role, variables in roles.items():
        uri = variables.get(f"{role}_repository", variables.get("nvidia_driver_repository", {})).get("uri", "")
        path = next((path for path in (*held(), *UNREAD) if uri.endswith(f"/{path}")), "")
        if not path and "nvidia" not in uri:
            continue
        for key, packages in variables.items():
            if key.endswith("packages"):
                yield from ((path or uri, p["name"], p["version"]) for p in packages if isinstance(p, dict))


def missing(path: str, name: str, version: str) -> str:
    """What is not there; empty where it is."""
    if path in UNREAD or name.startswith(ELSEWHERE) or version.partition(".")[0] in UNREAD_BRANCHES:
        return ""
    versions = held().get(path, {}).get(name)
    if not versions:
        return f"{path}: no {name}"
    if path.endswith("/x86_64") and version and version not in versions:
        return f"{path}: no {name}={version}"
    branches = {one.partition(".")[0] for one in versions}
    return "" if not version or version.partition(".")[0] in branches else f"{path}: no {name} of {version}"


def planned(catalog: Catalog) -> list[tuple[str, str, str]]:
    """What all cases that are not refused take from NVIDIA."""
    module, found = plan_cases(), []
    for case in (parameter.values[0] for parameter in module.cases()):
        request = Request.model_validate(case.get("request", {}))
        plan = plan_node("n1", module.facts_of(case), request, catalog, offline=case.get("offline", False))
        if plan.lock:
            found += list(wanted(plan.lock.roles | plan.lock.pending))
    return found


def test_what_every_plan_names_can_be_had() -> None:
    found = planned(load_catalog())
    paths = {path for path, _name, _version in found}
    assert {"ubuntu2404/x86_64", "debian13/x86_64", "rhel9/x86_64", "ubuntu2404/sbsa", "stable/deb/arm64"} <= paths
    assert sorted({text for one in found if (text := missing(*one))}) == []


# File of the catalog, what is right there, what is put in its place, and what must be said then.
WRONG = (
    ("packages", '"nvidia-kernel-open-dkms"', '"nvidia-open-dkms"', "debian13/x86_64: no nvidia-open-dkms"),
    ("packages", '"nvidia-open-580"', '"nvidia-580-open"', "ubuntu2404/sbsa: no nvidia-580-open"),
    ("packages", '"kmod-nvidia-open-dkms"', '"kmod-nvidia-open"', "rhel9/x86_64: no kmod-nvidia-open"),
    ("cuda", "cuda-toolkit-{major}-{minor}", "cuda-{major}-{minor}-kit", "rhel9/x86_64: no cuda-12-9-kit"),
    ("containers", '"libnvidia-container1"', '"libnvidia-container2"', "stable/deb/arm64: no libnvidia-container2"),
    ("libraries", '"9.27.0.42-1"', '"9.27.0.42-2"', "debian13/x86_64: no libcudnn9-cuda-13=9.27.0.42-2"),
)


def test_wrong_names_in_a_copy_of_the_catalog_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(shutil.copytree(loader.DIRECTORY, tmp_path / "catalog"))
    for file, right, wrong, _said in WRONG:
        content = (copy / f"{file}.yml").read_text()
        assert right in content
        (copy / f"{file}.yml").write_text(content.replace(right, wrong))
    monkeypatch.setattr(loader, "DIRECTORY", copy)
    found = {missing(*one) for one in planned(load_catalog.__wrapped__())}
    assert {said for *_, said in WRONG} - found == set()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("debian13/x86_64", "nvidia-open-595", "595.91.07-1"), "debian13/x86_64: no nvidia-open-595"),
        (("debian13/x86_64", "nvidia-open", "595.99.99-1"), "debian13/x86_64: no nvidia-open=595.99.99-1"),
        (("ubuntu2404/sbsa", "nvidia-open-595", "595.91.07-1"), "ubuntu2404/sbsa: no nvidia-open-595"),
        (("ubuntu2404/sbsa", "nvidia-open-580", "590.48.01-1"), "ubuntu2404/sbsa: no nvidia-open-580 of 590.48.01-1"),
        (("ubuntu2404/arm64", "nvidia-open-580", "580.178.04-1"), "ubuntu2404/arm64: no nvidia-open-580"),
        (("rhel9/x86_64", "nvidia-fabric-manager", "580.178.04"), "rhel9/x86_64: no nvidia-fabric-manager"),
    ],
)
def test_what_cannot_be_had_is_told(wrong: tuple[str, str, str], said: str) -> None:
    assert missing(*wrong) == said
