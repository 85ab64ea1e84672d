"""Decides the driver: branch, flavour, origin, version."""

from __future__ import annotations

from typing import Any

from gpustrap.errors import Problem
from gpustrap.model.lock import LockedRepository
from gpustrap.resolve import repository
from gpustrap.resolve.gpu import driver_words as words
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.candidates import Candidate, all_candidates, fill, kernel_packages
from gpustrap.resolve.gpu.driver_refusal import refuse
from gpustrap.resolve.gpu.driver_version import driver_version
from gpustrap.resolve.gpu.installed import Installed, installed_driver
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.parts import Inputs, Part

ROLE = "nvidia_driver"


def plan_driver(inputs: Inputs, gpus: tuple[NodeGpu, ...]) -> tuple[Part, Driver | None]:
    """Decide the variables of role nvidia_driver.

    Args:
        inputs: The node, the request, the catalog.
        gpus: The GPUs it shall drive.

    Returns:
        The part, and what was decided; None with every refusal.
    """
    if not all(gpu.architectures for gpu in gpus):
        return Part(), None  # the look at the node refuses a GPU of which nothing is known
    every = all_candidates(inputs, gpus)
    fitting = tuple(c for c in every if not c.unfit)
    installed = installed_driver(inputs.facts, inputs.request.nvidia_repository)
    locked = _locked(inputs, fitting)
    kept = None if "driver" in inputs.upgrade else _kept(inputs, fitting, installed)
    ranked = sorted((c for c in fitting if _by_itself(inputs, c)), key=lambda c: rank(inputs, c))
    chosen = locked or kept or next(iter(ranked), None)
    if chosen is None:
        return Part(problems=(refuse(inputs, gpus, every),)), None
    locked_version = str(inputs.kept(ROLE, "nvidia_driver_package_version") or "") if locked else ""
    version = driver_version(inputs, chosen, locked=locked_version, installed=installed if chosen is kept else None)
    if isinstance(version, Problem):
        return Part(problems=(version,)), None
    why = words.why_branch(inputs, chosen, locked=chosen is locked, kept=chosen is kept)
    stays = chosen is kept and installed is not None and version.package == installed.package_version
    driver = Driver(chosen.branch, chosen.packages, version.upstream, version.package, kept=stays)
    part = Part(
        choices=words.choices(inputs, chosen, version, why),
        variables=_variables(inputs, driver, installed if stays else None),
        findings=words.findings(chosen, version),
        reasoning=(words.reasoning(inputs, gpus, every, chosen=chosen, version=version, why=why),),
        repositories=_repositories(inputs, chosen),
        disk=() if stays else (("/usr", chosen.packages.size),),
    )
    return part, driver


def _locked(inputs: Inputs, fitting: tuple[Candidate, ...]) -> Candidate | None:
    """The locked driver, where it still fits and nobody asked for a newer one."""
    if "driver" in inputs.upgrade:
        return None
    keys = ("branch", "flavour", "origin", "module")
    wanted = tuple(inputs.kept(ROLE, f"nvidia_driver_{key}") for key in keys)
    return next((c for c in fitting if wanted == c.key), None)


def _kept(inputs: Inputs, fitting: tuple[Candidate, ...], installed: Installed | None) -> Candidate | None:
    """The node's own driver, where it fits: a good one is not replaced by another good one."""
    if installed is None:
        return None
    same = [
        c
        for c in fitting
        if (c.branch.branch, c.packages.flavour) == (installed.branch, installed.flavour)
        and installed.origin in {None, c.packages.origin}
        and (c.branch.supported or c.packages.origin == "distribution")
    ]
    supported = [c for c in same if c.branch.supported] or [c for c in same if _by_itself(inputs, c)]
    return min(supported, key=lambda c: rank(inputs, c), default=None)


def _by_itself(inputs: Inputs, candidate: Candidate) -> bool:
    """Whether it may be chosen: what nobody read, or what is not meant for this, must be asked for."""
    request, branch, row = inputs.request, candidate.branch, candidate.packages
    asked_branch = request.driver_branch != "auto" or request.driver_version is not None
    if asked_branch:
        return True
    if branch.confidence == "recalled" or branch.type == "NFB":
        return False
    if row.confidence == "recalled" and request.driver_origin == "auto":
        return False
    # Of ended branches, only what a distribution still looks after.
    return branch.supported or row.origin == "distribution"


def rank(inputs: Inputs, candidate: Candidate) -> tuple[int, ...]:
    """What comes first: by policy, then newer, then open, then prebuilt, then the family's usual origin."""
    branch, row = candidate.branch, candidate.packages
    number = int(branch.branch)
    long_term = 0 if branch.type == "LTSB" else 1
    if not branch.supported:
        place = (2, 0)
    elif inputs.request.policy == "latest":
        place = (0, 0)
    else:
        place = (long_term, 0)
    usual = "nvidia" if inputs.distro.id == "debian" or inputs.distro.family == "redhat" else "distribution"
    # What nobody read comes last of what was asked for, too.
    return (
        *place,
        -number,
        int(candidate.recalled),
        int(row.flavour != "open"),
        int(row.module != "prebuilt"),
        int(row.origin != usual),
    )


def _variables(inputs: Inputs, driver: Driver, stays: Installed | None) -> dict[str, Any]:
    row, branch, version = driver.packages, driver.branch, driver.package_version
    names = tuple(fill(inputs, name, branch, driver.version) for name in row.packages)
    if stays and not set(stays.names) <= set(names):
        names = stays.names  # the same driver in other packages, and they stay what they are
    manager = inputs.facts.package_manager
    for_kernel = {
        n: manager.packages.get(n) or manager.candidates.get(n, "") for n in kernel_packages(inputs, row, branch)
    }
    found: dict[str, Any] = {
        "nvidia_driver_branch": branch.branch,
        "nvidia_driver_version": driver.version,
        "nvidia_driver_package_version": version,
        "nvidia_driver_flavour": row.flavour,
        "nvidia_driver_origin": row.origin,
        "nvidia_driver_module": row.module,
        "nvidia_driver_packages": [{"name": name, "version": version} for name in names],
        "nvidia_driver_kernel_packages": [{"name": n, "version": v} for n, v in for_kernel.items()],
        "nvidia_driver_components": list(row.components),
        "nvidia_driver_stream": fill(inputs, row.stream, branch, driver.version),
        "nvidia_driver_pin": row.pin,
        "nvidia_driver_persistence_mode": True,
        "nvidia_driver_mok": inputs.request.driver_mok,
    }
    place = inputs.catalog.repository(row.repository, inputs.facts.os.architecture)
    if place and row.origin == "nvidia":
        found |= {f"nvidia_driver_{key}": value for key, value in repository.variables(inputs, place).items()}
    return found


def _repositories(inputs: Inputs, chosen: Candidate) -> tuple[LockedRepository, ...]:
    place = inputs.catalog.repository(chosen.packages.repository, inputs.facts.os.architecture)
    return (repository.locked(inputs, place),) if place else ()
