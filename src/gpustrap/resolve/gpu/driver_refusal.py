"""Why a node can have no driver: the devices, the rule, its source, the ways out."""

from __future__ import annotations

from collections.abc import Iterable

from gpustrap.errors import Problem
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.candidates import Candidate
from gpustrap.resolve.gpu.limits import Limits, limits_of
from gpustrap.resolve.parts import Inputs


def refuse(inputs: Inputs, gpus: tuple[NodeGpu, ...], every: tuple[Candidate, ...]) -> Problem:
    """The refusal of a node for which no driver may be chosen.

    Args:
        inputs: The node, the request, the catalog.
        gpus: The GPUs it should drive.
        every: All that its distribution offers, each with what rules it out.
    """
    limits = _distinct(limits_of(gpu, inputs.facts.os.architecture) for gpu in gpus)
    evidence = "\n".join(f"{limit.gpu.label}: {limit.words} ({limit.gpu.row})" for limit in limits)
    if not _any_branch(inputs, limits):
        return _incompatible(inputs, limits, evidence)
    fit_gpus = [c for c in every if c.by != "gpus"]
    if not fit_gpus:
        return _not_here(inputs, limits, evidence)
    fit_request = [c for c in fit_gpus if c.by != "request"]
    if not fit_request:
        return _request(inputs, fit_gpus, evidence)
    if all(c.unfit for c in fit_request):
        why = "\n".join(dict.fromkeys(f"{c.words}: {c.unfit}" for c in fit_request))
        message = "the drivers that fit its GPUs cannot be installed on this machine"
        remedy = _other_system(inputs, limits)
        if any(c.by == "machine" and c.packages.module == "prebuilt" for c in fit_request):
            remedy = "boot a kernel of the distribution, or set gpustrap_driver_origin: nvidia"
        return inputs.problem("driver-unavailable", message, remedy, evidence=f"{evidence}\n{why}")
    return _unverified(inputs, [c for c in fit_request if not c.unfit], evidence)


def _distinct(limits: Iterable[Limits]) -> tuple[Limits, ...]:
    """One for each kind of GPU."""
    return tuple({limit.gpu.name: limit for limit in reversed(tuple(limits))}.values())[::-1]


def _any_branch(inputs: Inputs, limits: tuple[Limits, ...]) -> bool:
    """Whether any branch in the world drives them all in one flavour."""
    return any(
        not any(limit.against(branch, flavour) for limit in limits)
        for branch in inputs.catalog.drivers
        for flavour in branch.flavours
    )


def _incompatible(inputs: Inputs, limits: tuple[Limits, ...], evidence: str) -> Problem:
    names = " and ".join(limit.gpu.name for limit in limits)
    if len(limits) == 1:
        message = f"no driver branch of the catalog drives its {names}"
        remedy = "take the card out, or set gpustrap_gpu: none to plan the node without a GPU stack"
        return inputs.problem("gpu-not-supported", message, remedy, evidence=evidence)
    message = f"no driver drives {names} in one machine"
    remedy = (
        "put these GPUs into different machines, bind one kind to vfio-pci for virtual machines, or gpustrap_gpu: none"
    )
    return inputs.problem("gpus-incompatible", message, remedy, evidence=evidence)


def _not_here(inputs: Inputs, limits: tuple[Limits, ...], evidence: str) -> Problem:
    message = f"no driver for its GPUs is known on {inputs.distro.name}"
    return inputs.problem("driver-unavailable", message, _other_system(inputs, limits), evidence=evidence)


def _other_system(inputs: Inputs, limits: tuple[Limits, ...]) -> str:
    """The way out where another distribution has a driver for these GPUs on such a machine, or none has."""
    catalog, machine = inputs.catalog, inputs.facts.os.architecture
    keys = {
        key
        for row in catalog.driver_packages
        if catalog.repository(row.repository, machine)
        and any(
            not any(limit.against(branch, row.flavour) for limit in limits)
            for branch in map(catalog.driver, row.branches)
            if branch
        )
        for key in row.distros
    }
    names = [distro.name for distro in catalog.distros if distro.key in keys - {inputs.distro.key}]
    if names:
        return f"install a distribution that has one on {inputs.name}: {' or '.join(names)}"
    return "take the cards out, or set gpustrap_gpu: none to plan the node without a GPU stack"


def _request(inputs: Inputs, fit_gpus: list[Candidate], evidence: str) -> Problem:
    """The wish contradicts the GPUs or the distribution: what would do is named."""
    request = inputs.request
    wishes = {
        "gpustrap_driver_branch": request.driver_branch,
        "gpustrap_driver_flavour": request.driver_flavour,
        "gpustrap_driver_origin": request.driver_origin,
        "gpustrap_driver_version": request.driver_version or "auto",
    }
    asked = ", ".join(f"{name}: {value}" for name, value in wishes.items() if value != "auto")
    message = f"no driver for its GPUs on {inputs.distro.name} is as asked for ({asked})"
    would = "\n".join(dict.fromkeys(f"would do: {c.words}" for c in fit_gpus))
    remedy = "leave these variables out, or set what would do"
    return inputs.problem("driver-request-unfit", message, remedy, evidence=f"{evidence}\n{would}")


def _unverified(inputs: Inputs, fitting: list[Candidate], evidence: str) -> Problem:
    """What fits must be asked for: nobody read its names at their source, or it is short-lived."""
    newest = max(fitting, key=lambda c: (c.branch.type == "LTSB", int(c.branch.branch)))
    message = "the drivers that fit its GPUs are not chosen by themselves: unverified, short-lived or ended"
    would = "\n".join(dict.fromkeys(f"{c.words}: {_why_not(c)}" for c in fitting))
    remedy = f'to take it all the same, set gpustrap_driver_branch: "{newest.branch.branch}"'
    return inputs.problem("driver-unverified", message, remedy, evidence=f"{evidence}\n{would}")


def _why_not(candidate: Candidate) -> str:
    if candidate.branch.type == "NFB":
        return "a new-feature branch, dropped when the next one appears"
    if not candidate.branch.supported:
        return "NVIDIA ended this branch"
    return f"recalled, not read at its source ({candidate.packages.row})"
