"""Which of the drivers that a node could have comes first, and which only where somebody asks for it."""

from __future__ import annotations

from gpustrap.resolve.gpu.candidates import Candidate
from gpustrap.resolve.parts import Inputs


def not_by_itself(inputs: Inputs, candidate: Candidate) -> str:
    """Why it must be asked for: nobody read it, or it is not meant for this. Empty where it need not be."""
    request, branch, row = inputs.request, candidate.branch, candidate.packages
    if row.only_kept:
        return "these packages are kept where they are, and never installed anew"
    if request.driver_branch != "auto" or request.driver_version is not None:
        return ""
    if branch.confidence == "recalled" or (row.confidence == "recalled" and request.driver_origin == "auto"):
        return "recalled: nobody read its packages at their source yet"
    if branch.type == "NFB":
        return "a new-feature branch, dropped when the next one appears"
    # Of ended branches, only what a distribution still looks after.
    return "" if branch.supported or row.origin == "distribution" else "NVIDIA ended this branch"


def rank(inputs: Inputs, candidate: Candidate) -> tuple[int, ...]:
    """What comes first: by policy, then newer, then open, then prebuilt, then the family's usual origin."""
    branch, row = candidate.branch, candidate.packages
    place = 2 if not branch.supported else int(inputs.request.policy == "stable" and branch.type != "LTSB")
    usual = "nvidia" if inputs.distro.id == "debian" or inputs.distro.family == "redhat" else "distribution"
    # What nobody read comes last of what was asked for, too.
    return (
        place,
        -int(branch.branch),
        int(candidate.recalled),
        int(row.flavour != "open"),
        int(row.module != "prebuilt"),
        int(row.origin != usual),
    )
