"""Decides the driver: branch, flavour, origin, version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpustrap.errors import Problem
from gpustrap.model.lock import LockedRepository
from gpustrap.resolve import repository
from gpustrap.resolve.gpu import driver_words as words
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.candidates import Candidate, all_candidates, fill, kernel_packages
from gpustrap.resolve.gpu.driver_refusal import refuse
from gpustrap.resolve.gpu.driver_version import Version, driver_version
from gpustrap.resolve.gpu.installed import Installed, installed_driver
from gpustrap.resolve.gpu.ranking import not_by_itself, rank
from gpustrap.resolve.gpu.settings import plan_settings
from gpustrap.resolve.gpu.stack import Driver, Staying
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
    installed = installed_driver(inputs, every)
    passed = {c: why for c in fitting if (why := not_by_itself(inputs, c))}
    ranked = sorted((c for c in fitting if c not in passed), key=lambda c: rank(inputs, c))
    stays = _staying(inputs, fitting, installed, best=next(iter(ranked), None))
    chosen = stays.candidate if stays else next(iter(ranked), None)
    if chosen is None:
        return Part(problems=(refuse(inputs, gpus, every),)), None
    version = driver_version(
        inputs,
        chosen,
        locked=stays.version if stays and stays.locked else "",
        installed=installed if stays and stays.version and not stays.locked else None,
    )
    if isinstance(version, Problem):
        return Part(problems=(version,)), None
    same = stays is not None and version.package == stays.version != ""
    driver = Driver(
        chosen.branch, chosen.packages, version.upstream, version.package, kept=_is_there(installed, chosen, version)
    )
    said = words.Said(inputs, gpus, every, passed, chosen, version, stays, installed)
    settings = plan_settings(inputs, gpus, driver)
    part = Part(
        choices=(*words.choices(said), *settings.choices),
        variables=_variables(inputs, driver, stays.names if stays and same else ()) | (settings.variables or {}),
        problems=settings.problems,
        findings=words.findings(said),
        reasoning=(words.reasoning(said),),
        repositories=_repositories(inputs, chosen),
        disk=() if driver.kept else (("/usr", chosen.packages.size),),
    )
    return part, driver


def _is_there(installed: Installed | None, chosen: Candidate, version: Version) -> bool:
    """Whether exactly what was decided is on the node."""
    return installed is not None and installed.candidate is chosen and installed.package_version == version.package


def _staying(
    inputs: Inputs, fitting: tuple[Candidate, ...], installed: Installed | None, *, best: Candidate | None
) -> Staying | None:
    """What the lock has, else the node's own driver, where it fits: a good one is not replaced by another good one.

    With an upgrade its branch stays where policy has no newer one, and only its version goes.
    """
    found = _locked(inputs, fitting) or _kept(inputs, installed)
    if found is None or "driver" not in inputs.upgrade:
        return found
    older = best is not None and int(found.candidate.branch.branch) < int(best.branch.branch)
    if older or not found.candidate.branch.supported:
        return None
    return replace(found, version="", names=())


def _locked(inputs: Inputs, fitting: tuple[Candidate, ...]) -> Staying | None:
    """The locked driver, by its packages: there are several rows for a branch."""
    keys = ("branch", "flavour", "origin", "module")
    wanted = tuple(inputs.kept(ROLE, f"nvidia_driver_{key}") for key in keys)
    names = tuple(p["name"] for p in inputs.kept(ROLE, "nvidia_driver_packages") or ())
    same = (c for c in fitting if c.key == wanted and fill(inputs, c.packages.leading, c.branch) in names)
    chosen = next(same, None)
    version = str(inputs.kept(ROLE, "nvidia_driver_package_version") or "")
    return Staying(chosen, version, names, locked=True) if chosen else None


def _kept(inputs: Inputs, installed: Installed | None) -> Staying | None:
    """The node's own driver."""
    if installed is None or installed.candidate.unfit:
        return None
    candidate = installed.candidate
    if not candidate.branch.supported and not_by_itself(inputs, candidate):
        return None
    return Staying(candidate, installed.package_version, installed.names)


def _variables(inputs: Inputs, driver: Driver, staying: tuple[str, ...]) -> dict[str, Any]:
    row, branch, version = driver.packages, driver.branch, driver.package_version
    names = staying or tuple(fill(inputs, name, branch, driver.version) for name in row.packages)
    found: dict[str, Any] = {
        "nvidia_driver_branch": branch.branch,
        "nvidia_driver_version": driver.version,
        "nvidia_driver_package_version": version,
        "nvidia_driver_flavour": row.flavour,
        "nvidia_driver_origin": row.origin,
        "nvidia_driver_module": row.module,
        "nvidia_driver_packages": [{"name": name, "version": version} for name in names],
        "nvidia_driver_kernel_packages": _for_kernel(inputs, driver),
        "nvidia_driver_components": list(row.components),
        "nvidia_driver_stream": fill(inputs, row.stream, branch, driver.version),
        "nvidia_driver_pin": row.pin,
        "nvidia_driver_persistence_mode": True,
        "nvidia_driver_mok": inputs.request.driver_mok,
        "nvidia_driver_gpu_users": inputs.request.gpu_users,
        "nvidia_driver_proxy": inputs.proxy,
    }
    place = inputs.catalog.repository(row.repository, inputs.facts.os.architecture)
    if place and row.origin == "nvidia":
        found |= {f"nvidia_driver_{key}": value for key, value in repository.variables(inputs, place).items()}
    return found


def _for_kernel(inputs: Inputs, driver: Driver) -> list[dict[str, str]]:
    """What the modules need of every kernel: ``{kernel}`` is the one that runs then, so it stays in the name.

    Without versions: these follow the kernel, and an archive publishes a new one each week.
    """
    running = inputs.facts.kernel.running
    names = kernel_packages(inputs, driver.packages, driver.branch)
    return [{"name": name.replace(running, "{kernel}") if running else name, "version": ""} for name in names]


def _repositories(inputs: Inputs, chosen: Candidate) -> tuple[LockedRepository, ...]:
    place = inputs.catalog.repository(chosen.packages.repository, inputs.facts.os.architecture)
    return (repository.locked(inputs, place),) if place else ()
