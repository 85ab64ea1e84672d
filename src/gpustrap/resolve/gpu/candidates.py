"""Every driver that a node could have: the catalog's packages, less what GPUs, request and machine rule out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpustrap.catalog.schema_gpu import DriverBranch
from gpustrap.catalog.schema_stack import DriverPackages
from gpustrap.model.request import Request
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.components import components_off
from gpustrap.resolve.gpu.fabric_needs import Needs, fabric_missing, fabric_needs
from gpustrap.resolve.gpu.kernel import is_foreign, kernel_flavour
from gpustrap.resolve.gpu.limits import Limits, limits_of
from gpustrap.resolve.parts import Inputs


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A branch in a flavour, from an origin; each is itself, whatever another is made of.

    Attributes:
        unfit: Why it cannot be, as the end of a sentence; empty where it can.
        by: What rules it out: ``gpus``, ``fabric``, ``machine`` or ``request``, the first of these: what the request
            rules out would do without it.
        unlike: The variables that ask for another driver, whatever else rules it out.
    """

    branch: DriverBranch
    packages: DriverPackages
    unfit: str = ""
    by: str = ""
    unlike: tuple[str, ...] = ()

    @property
    def would_do(self) -> bool:
        """Whether nothing but the request rules it out, if anything does, and it may be installed anew."""
        return self.by in {"", "request"} and not self.packages.only_kept

    @property
    def words(self) -> str:
        """``580 open from the distribution, prebuilt``."""
        origin = "NVIDIA's repository" if self.packages.origin == "nvidia" else "the distribution"
        return f"{self.branch.branch} {self.packages.flavour} from {origin}, {self.packages.module}"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Branch, flavour, origin and module, as a lock has them."""
        row = self.packages
        return self.branch.branch, row.flavour, row.origin, row.module

    @property
    def recalled(self) -> bool:
        """Whether the branch or its package names were not read at their source."""
        return "recalled" in {self.branch.confidence, self.packages.confidence}


def candidates(inputs: Inputs, gpus: tuple[NodeGpu, ...]) -> tuple[Candidate, ...]:
    """Every driver that GPUs, request and machine allow, unranked. Another GPU or wish never adds one."""
    return tuple(c for c in all_candidates(inputs, gpus) if not c.unfit)


def all_candidates(inputs: Inputs, gpus: tuple[NodeGpu, ...]) -> tuple[Candidate, ...]:
    """Every driver there is for the node's distribution, each with what rules it out."""
    kinds = {(gpu.pci.device, gpu.pci.subsystem_device): gpu for gpu in gpus}.values()
    limits = tuple(limits_of(gpu, inputs.facts.os.architecture) for gpu in kinds)
    needs = fabric_needs(inputs.facts, gpus)
    return tuple(_judged(inputs, limits, needs, branch, row) for branch, row in _offered(inputs))


def _offered(inputs: Inputs) -> Iterator[tuple[DriverBranch, DriverPackages]]:
    there = inputs.facts.packages_there
    for row in inputs.catalog.driver_packages:
        if inputs.distro.key in row.distros:
            for name in row.branches:
                branch = inputs.catalog.driver(name)
                if branch and (not row.only_kept or fill(inputs, row.leading, branch) in there):
                    yield branch, row


def _judged(
    inputs: Inputs, limits: tuple[Limits, ...], needs: Needs, branch: DriverBranch, row: DriverPackages
) -> Candidate:
    by_gpus = next(filter(None, (limit.against(branch, row.flavour) for limit in limits)), "")
    if not by_gpus and row.flavour not in branch.flavours:
        by_gpus = f"branch {branch.branch} has no {row.flavour} modules"
    asked = wishes(inputs.request)
    unlike = tuple(name for name, value in asked.items() if value.partition(".")[0] != _wished(name, branch, row))
    judgements = (
        ("gpus", by_gpus),
        ("fabric", _by_fabric(needs, row)),
        ("machine", _by_machine(inputs, row, branch)),
        ("request", next((f"{name} is {asked[name]}" for name in unlike), "")),
    )
    by, unfit = next(((by, unfit) for by, unfit in judgements if unfit), ("", ""))
    return Candidate(branch, row, unfit, by, unlike)


def wishes(request: Request) -> dict[str, str]:
    """What is asked for of the driver, by the names of the variables."""
    asked = {
        "gpustrap_driver_branch": request.driver_branch,
        "gpustrap_driver_version": request.driver_version or "auto",
        "gpustrap_driver_flavour": request.driver_flavour,
        "gpustrap_driver_origin": request.driver_origin,
    }
    return {name: value for name, value in asked.items() if value != "auto"}


def _wished(name: str, branch: DriverBranch, row: DriverPackages) -> str:
    """What a variable would have to ask for; of a version, its first number."""
    return {"gpustrap_driver_flavour": row.flavour, "gpustrap_driver_origin": row.origin}.get(name, branch.branch)


def _by_fabric(needs: Needs, row: DriverPackages) -> str:
    missing = " and ".join(fabric_missing(row, needs))
    return f"no {missing} is known beside it, which {needs.why} need" if missing else ""


def _by_machine(inputs: Inputs, row: DriverPackages, branch: DriverBranch) -> str:
    machine = inputs.facts.os.architecture
    if inputs.catalog.repository(row.repository, machine) is None:
        return f"repository {row.repository} has nothing for {machine}"
    if row.module != "prebuilt":
        return _not_in_archive(inputs, row, branch)
    flavour = kernel_flavour(inputs.facts.kernel.running, inputs.distro)
    if not flavour:
        return f"kernel {inputs.facts.kernel.running} is none that {inputs.distro.name} has modules for"
    manager = inputs.facts.package_manager
    names = kernel_packages(inputs, row, branch)
    if manager.candidates and not components_off(inputs.facts, row):
        missing = [name for name in names if name not in manager.candidates and name not in manager.packages]
        unknown = f"apt on the node does not know {', '.join(missing)}" if missing else ""
        return unknown or _not_in_archive(inputs, row, branch)
    known = flavour in inputs.distro.prebuilt_for
    return "" if known else f"no prebuilt modules are known for kernel flavour {flavour}"


def _not_in_archive(inputs: Inputs, row: DriverPackages, branch: DriverBranch) -> str:
    """What the distribution's archive should have, and the node's apt, once asked, does not know.

    A locked driver stays one: that its version is gone from the archive is told, and no reason for another branch.
    """
    manager, leading = inputs.facts.package_manager, fill(inputs, row.leading, branch)
    asked = row.origin == "distribution" and manager.candidates and not inputs.offline
    locked = {package["name"] for package in inputs.kept("nvidia_driver", "nvidia_driver_packages") or ()}
    if not asked or leading in {*manager.candidates, *manager.packages, *locked} or components_off(inputs.facts, row):
        return ""
    return f"apt on the node does not know {leading}"


def kernel_packages(inputs: Inputs, row: DriverPackages, branch: DriverBranch) -> tuple[str, ...]:
    """The names of what a row's modules need for the running kernel.

    Of a kernel that is none of the distribution's: its headers, unless they are there and apt does not know them, since
    they have other names where such a kernel is from.
    """
    kernel, manager = inputs.facts.kernel, inputs.facts.package_manager
    if not is_foreign(kernel.running, inputs.distro):
        return tuple(fill(inputs, name, branch) for name in row.kernel_packages)
    names = tuple(fill(inputs, name, branch) for name in row.kernel_packages if "{kernel_flavour}" not in name)
    there = kernel.running in kernel.headers
    return tuple(n for n in names if not there or n in manager.packages or n in manager.candidates)


def fill(inputs: Inputs, template: str, branch: DriverBranch, version: str = "") -> str:
    """Put branch, driver version and kernel into a template of packages.yml."""
    kernel = inputs.facts.kernel.running
    flavour = kernel_flavour(kernel, inputs.distro)
    return template.format(branch=branch.branch, version=version, kernel=kernel, kernel_flavour=flavour)
