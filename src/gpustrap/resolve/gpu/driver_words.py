"""What is said of the decision about the driver: its choices, findings and reasoning."""

from __future__ import annotations

from typing import Literal

from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.candidates import Candidate
from gpustrap.resolve.gpu.driver_version import Version
from gpustrap.resolve.gpu.limits import limits_of
from gpustrap.resolve.parts import Inputs

KINDS = {
    "LTSB": "long-term branch",
    "PB": "production branch",
    "NFB": "new-feature branch, dropped when the next one appears",
    "legacy": "legacy branch",
}


def why_branch(inputs: Inputs, chosen: Candidate, *, locked: bool, kept: bool) -> str:
    """Why this branch: asked for, locked, on the node already, or by policy."""
    request, branch = inputs.request, chosen.branch
    asked = "gpustrap_driver_branch asks for it" if request.driver_branch != "auto" else ""
    asked = "gpustrap_driver_version asks for it" if request.driver_version else asked
    here = "locked" if locked else "it is on the node and drives all its GPUs" if kept else ""
    ends = f", fixes until {branch.ends}" if branch.ends and branch.supported else ""
    if asked or here:
        return f"{asked or here}; {KINDS[branch.type]}{ends}"
    if not branch.supported:
        return f"what {inputs.distro.name} itself has; no supported branch whose packages are known drives all GPUs"
    if request.policy == "latest":
        return f"the newest branch that drives all GPUs (gpustrap_policy: latest); {KINDS[branch.type]}{ends}"
    return f"the {KINDS[branch.type]} that drives all GPUs{ends}"


def sources(chosen: Candidate) -> str:
    """The catalog rows a driver rests on."""
    return f"catalog: drivers, {chosen.branch.branch}; {chosen.packages.row.removeprefix('catalog: ')}"


def choices(inputs: Inputs, chosen: Candidate, version: Version, why: str) -> tuple[Choice, ...]:
    """The driver, whose it is, and what keeps it loaded."""
    row = chosen.packages
    recalled = chosen.recalled or (version.from_catalog and not inputs.request.driver_version)
    confidence: Literal["recalled", "verified"] = "recalled" if recalled else "verified"
    simulated = inputs.request.simulated and row.origin == "nvidia"
    value = f"{version.upstream or chosen.branch.branch + ' (version open)'} {row.flavour}"
    source = sources(chosen)
    whose = "NVIDIA's repository" if row.origin == "nvidia" else f"{inputs.distro.name}'s archive"
    module = "prebuilt and signed" if row.module == "prebuilt" else "built on the node by DKMS"
    driver = Choice(
        item="driver",
        value=value,
        reason=f"{why}; {version.reason}",
        source=source,
        confidence=confidence,
        simulated=simulated,
    )
    origin = Choice(
        item="driver-origin",
        value=f"{whose}, {module}",
        reason=_origin_reason(inputs, chosen),
        source=row.row,
        confidence=row.confidence,
        simulated=simulated,
    )
    persistence = Choice(
        item="persistenced",
        value="nvidia-persistenced, persistence mode on",
        reason="the driver stays loaded between jobs, and limits set on a GPU stay set",
        source=row.row,
        confidence=row.confidence,
    )
    return driver, origin, persistence


def _origin_reason(inputs: Inputs, chosen: Candidate) -> str:
    row = chosen.packages
    if inputs.request.driver_origin != "auto":
        return "gpustrap_driver_origin asks for it"
    if row.module == "prebuilt":
        return "modules come with every kernel, signed for Secure Boot"
    if row.origin == "nvidia":
        return f"{inputs.distro.name} itself has none that fits better"
    return "the only packages known that drive all GPUs here"


def findings(chosen: Candidate, version: Version) -> tuple[Finding, ...]:
    """A warning where NVIDIA no longer mends the branch."""
    branch = chosen.branch
    if branch.supported:
        return ()
    ended = f" in {branch.ends}" if branch.ends else ""
    return (
        Finding(
            code="driver-branch-ended",
            severity="warning",
            subject=f"driver {version.upstream or branch.branch}",
            message=f"NVIDIA ended branch {branch.branch}{ended}; only the distribution may still mend it",
            evidence=f"catalog: drivers, {branch.branch}: {branch.source}",
            advice="plan for newer GPUs, or a distribution with a supported branch for these",
        ),
    )


def reasoning(
    inputs: Inputs,
    gpus: tuple[NodeGpu, ...],
    every: tuple[Candidate, ...],
    *,
    chosen: Candidate,
    version: Version,
    why: str,
) -> Reasoning:
    """What each GPU takes, what was ruled out and by what, what else would do, and what was chosen."""
    lines = []
    for name in dict.fromkeys(gpu.name for gpu in gpus):
        gpu = next(g for g in gpus if g.name == name)
        kinds = " or ".join(dict.fromkeys(a.name for a in gpu.architectures))
        lines.append(f"{name} ({kinds}) takes {limits_of(gpu, inputs.facts.os.architecture).words} ({gpu.row}).")
    passed: dict[str, list[str]] = {}
    for candidate in every:
        if candidate.unfit:
            passed.setdefault(candidate.unfit, []).append(candidate.branch.branch + " " + candidate.packages.flavour)
    lines += [f"Ruled out: {', '.join(dict.fromkeys(names))}: {reason}." for reason, names in passed.items()]
    others = [c.words for c in every if not c.unfit and c.key != chosen.key]
    if others:
        lines.append(f"Also possible: {'; '.join(dict.fromkeys(others))}.")
    lines.append(f"Chosen: {chosen.words}: {why} ({sources(chosen)}).")
    if version.upstream:
        lines.append(f"Version {version.package}: {version.reason}.")
    return Reasoning(item="driver", sentences=tuple(lines))
