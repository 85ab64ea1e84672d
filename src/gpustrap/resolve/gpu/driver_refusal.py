"""Why a node can have no driver: the devices, the rule, its source, the ways out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from gpustrap.errors import Problem
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.candidates import Candidate, wishes
from gpustrap.resolve.gpu.driver_version import can_be_had
from gpustrap.resolve.gpu.elsewhere import other_distros
from gpustrap.resolve.gpu.limits import Limits, limits_of
from gpustrap.resolve.gpu.ranking import rank
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
    fit_gpus = [c for c in every if c.by != "gpus" and not c.packages.only_kept]
    if not fit_gpus:
        return _not_here(inputs, gpus, evidence)
    would_do = [c for c in fit_gpus if c.would_do]
    if not would_do:
        why = "\n".join(dict.fromkeys(f"{c.words}: {c.unfit}" for c in fit_gpus))
        message = "the drivers that fit its GPUs cannot be installed on this machine"
        remedy = _other_system(inputs, gpus)
        if any(c.by == "machine" and c.packages.module == "prebuilt" for c in fit_gpus):
            remedy = f"boot a kernel of {inputs.distro.name}; or {remedy}"
        return inputs.problem("driver-unavailable", message, remedy, evidence=f"{evidence}\n{why}")
    if all(c.unfit for c in would_do):
        return _request(inputs, fit_gpus, evidence)
    return _unverified(inputs, [c for c in would_do if not c.unfit], evidence)


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
    if len(limits) == 1:
        message = f"no driver branch of the catalog drives its {limits[0].gpu.name}"
        remedy = "take the card out, or set gpustrap_gpu: none to plan the node without a GPU stack"
        return inputs.problem("gpu-not-supported", message, remedy, evidence=evidence)
    clash = next((p for p in combinations(limits, 2) if not _any_branch(inputs, p)), limits)
    message = f"no driver drives {' and '.join(limit.gpu.name for limit in clash)} in one machine"
    remedy = (
        "put these GPUs into different machines, bind one kind to vfio-pci for virtual machines, or gpustrap_gpu: none"
    )
    return inputs.problem("gpus-incompatible", message, remedy, evidence=evidence)


def _not_here(inputs: Inputs, gpus: tuple[NodeGpu, ...], evidence: str) -> Problem:
    message = f"no driver for its GPUs is known on {inputs.distro.name}"
    return inputs.problem("driver-unavailable", message, _other_system(inputs, gpus), evidence=evidence)


def _other_system(inputs: Inputs, gpus: tuple[NodeGpu, ...]) -> str:
    """The way out where another distribution has a driver for these GPUs on such a machine, or none has."""
    names = other_distros(inputs, gpus)
    if names:
        return f"install a distribution that has one on {inputs.name}: {' or '.join(names)}"
    return "take the cards out, or set gpustrap_gpu: none to plan the node without a GPU stack"


def _request(inputs: Inputs, fit_gpus: list[Candidate], evidence: str) -> Problem:
    """The request alone rules out what would do: that is listed, and what of the request is in its way."""
    asked = ", ".join(f"{name}: {value}" for name, value in wishes(inputs.request).items())
    message = f"no driver for its GPUs on {inputs.distro.name} is as asked for ({asked})"
    would_do = [c for c in fit_gpus if c.would_do]
    had = [c for c in would_do if can_be_had(inputs, c)]
    lines = [f"as asked for: {c.words}, but {c.unfit}" for c in fit_gpus if not c.unlike]
    lines += [f"would do: {c.words}" for c in had or would_do]
    remedy = "; or ".join(_changes(inputs, had or would_do, would_do))
    if not had:
        remedy += ", and set gpustrap_driver_version to one that exists"
    return inputs.problem(
        "driver-request-unfit", message, remedy, evidence="\n".join(dict.fromkeys([evidence, *lines]))
    )


def _changes(inputs: Inputs, had: list[Candidate], would_do: list[Candidate]) -> list[str]:
    """The fewest changes of the request that let a driver through; the one that would be chosen by itself first."""
    fewest = min(len(c.unlike) for c in had)
    ways: dict[tuple[str, ...], str] = {}
    for candidate in sorted(had, key=preference, reverse=True):
        if len(candidate.unlike) == fewest:
            ways.setdefault(candidate.unlike, _change(inputs, candidate, _origin_then(inputs, candidate, would_do)))
    return list(ways.values())


def _origin_then(inputs: Inputs, candidate: Candidate, would_do: list[Candidate]) -> str:
    """Whose driver would be chosen once the candidate's wishes are left out, where that one cannot be had."""
    then = min((c for c in would_do if {*c.unlike} <= {*candidate.unlike}), key=lambda c: rank(inputs, c))
    return candidate.packages.origin if can_be_had(inputs, then) else then.packages.origin


def _change(inputs: Inputs, candidate: Candidate, origin: str) -> str:
    """What to leave out, and the branch and origin where those would not be chosen by themselves afterwards.

    Args:
        inputs: The node, the request, the catalog.
        candidate: The driver.
        origin: Whose driver would be chosen afterwards.
    """
    out = list(candidate.unlike)
    named = {"gpustrap_driver_branch", "gpustrap_driver_version"} & (wishes(inputs.request).keys() - set(out))
    words = []
    if _why_not(candidate) and not named:
        out = [name for name in out if name != "gpustrap_driver_branch"]
        words = [f'set gpustrap_driver_branch: "{candidate.branch.branch}"']
    if candidate.packages.origin != origin:
        out = [name for name in out if name != "gpustrap_driver_origin"]
        words.append(f"set gpustrap_driver_origin: {candidate.packages.origin}")
    return " and ".join([*([f"leave out {' and '.join(out)}"] if out else []), *words])


def _unverified(inputs: Inputs, fitting: list[Candidate], evidence: str) -> Problem:
    """What fits must be asked for: nobody read its names at their source, or it is short-lived."""
    first = max(fitting, key=lambda c: (can_be_had(inputs, c), preference(c)))
    message = "the drivers that fit its GPUs are not chosen by themselves: unverified, short-lived or ended"
    would = "\n".join(dict.fromkeys(f"{c.words}: {_why_not(c)}" for c in fitting))
    remedy = f'to take it all the same, set gpustrap_driver_branch: "{first.branch.branch}"'
    if not can_be_had(inputs, first):
        remedy += ", and gpustrap_driver_version to one that exists: the catalog knows none"
    return inputs.problem("driver-unverified", message, remedy, evidence=f"{evidence}\n{would}")


def preference(candidate: Candidate) -> tuple[bool, bool, bool, int]:
    """What is named first among several ways out: the greatest."""
    branch = candidate.branch
    return not _why_not(candidate), branch.supported, branch.type == "LTSB", int(branch.branch)


def _why_not(candidate: Candidate) -> str:
    """Why it would have to be asked for; empty where it would not."""
    against = []
    if candidate.branch.type == "NFB":
        against.append("a new-feature branch, dropped when the next one appears")
    elif not candidate.branch.supported:
        against.append("NVIDIA ended this branch")
    if candidate.recalled:
        against.append(f"recalled, not read at its source ({candidate.packages.row})")
    return "; ".join(against)
