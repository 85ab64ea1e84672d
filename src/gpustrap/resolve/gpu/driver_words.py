"""What is said of the decision about the driver: its choices, findings and reasoning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.resolve.confidence import confidence
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.candidates import Candidate
from gpustrap.resolve.gpu.driver_version import Version
from gpustrap.resolve.gpu.installed import Installed
from gpustrap.resolve.gpu.limits import limits_of
from gpustrap.resolve.gpu.stack import Staying
from gpustrap.resolve.parts import Inputs

KINDS = {
    "LTSB": "long-term branch",
    "PB": "production branch",
    "NFB": "new-feature branch, dropped when the next one appears",
}
SHOWN = 3  # of what else would do


@dataclass(frozen=True, slots=True)
class Said:
    """The decision, and all that it was made from.

    Attributes:
        every: Every candidate, the unfit ones too.
        passed: The fitting ones that are not chosen by themselves, each with the reason.
        staying: What was to stay.
        installed: What is on the node.
    """

    inputs: Inputs
    gpus: tuple[NodeGpu, ...]
    every: tuple[Candidate, ...]
    passed: dict[Candidate, str]
    chosen: Candidate
    version: Version
    staying: Staying | None
    installed: Installed | None

    @property
    def why(self) -> str:
        """Why this branch: asked for, locked, on the node already, or by policy."""
        inputs, branch = self.inputs, self.chosen.branch
        ends = f", fixes until {branch.ends}" if branch.ends and branch.supported else ""
        if inputs.request.driver_version or inputs.request.driver_branch != "auto":
            variable = "gpustrap_driver_version" if inputs.request.driver_version else "gpustrap_driver_branch"
            return f"{variable} asks for it; {KINDS[branch.type]}{ends}"
        if self.staying:
            here = "locked" if self.staying.locked else "it is on the node and drives all its GPUs"
            return f"{here}; {KINDS[branch.type]}{ends}"
        if not branch.supported:
            return f"what {inputs.distro.name} itself has; no supported branch whose packages are known drives all GPUs"
        if inputs.request.policy == "latest":
            return f"the newest long-term or production branch that drives all GPUs{ends}"
        better = ""
        if branch.type != "LTSB":
            better = f"; no long-term branch that drives them is known to be there for {inputs.distro.name}"
        return f"the {KINDS[branch.type]} that drives all GPUs{ends}{better}"

    @property
    def sources(self) -> str:
        """The catalog rows the driver rests on."""
        return f"catalog: drivers, {self.chosen.branch.branch}; {self.chosen.packages.row.removeprefix('catalog: ')}"

    @property
    def not_by_itself(self) -> str:
        """A supported branch that would do and must be asked for, as advice; empty where there is none."""
        better = [c for c in self.passed if c.branch.supported and c.branch.type != "NFB" and not c.packages.only_kept]
        if not better:
            return ""
        best = max(better, key=lambda c: (c.branch.type == "LTSB", int(c.branch.branch)))
        return f'set gpustrap_driver_branch: "{best.branch.branch}" to take {best.words}: {self.passed[best]}'


def choices(said: Said) -> tuple[Choice, ...]:
    """The driver, whose it is, and what keeps it loaded."""
    inputs, row, version = said.inputs, said.chosen.packages, said.version
    repository = inputs.catalog.repository(row.repository, inputs.facts.os.architecture)
    simulated = inputs.simulated and (row.origin == "nvidia" or inputs.facts.nvidia.simulated)
    whose = "NVIDIA's repository" if row.origin == "nvidia" else f"{inputs.distro.name}'s archive"
    module = "prebuilt and signed" if row.module == "prebuilt" else "built on the node by DKMS"
    value = f"{version.upstream} {row.flavour}"
    if not version.upstream:
        value = f"{said.chosen.branch.branch} {row.flavour}, version not known yet"
    driver = Choice(
        item="driver",
        value=value,
        reason=f"{said.why}; {version.reason}",
        source=said.sources,
        confidence=confidence(said.chosen.branch, row, repository, unread=version.from_catalog),
        simulated=simulated,
    )
    origin = Choice(
        item="driver-origin",
        value=f"{whose}, {module}",
        reason=_origin_reason(said),
        source=row.row,
        confidence=confidence(row, repository),
        simulated=simulated,
    )
    persistence = Choice(
        item="persistenced",
        value="persistence mode on",
        reason="the driver stays loaded between jobs, and limits set on a GPU stay set; by a unit of gpustrap, and by "
        "nvidia-persistenced where the packages bring it",
        source=row.row,
        confidence=confidence(row, repository),
    )
    return driver, origin, persistence


def _origin_reason(said: Said) -> str:
    """What decided: a wish, what is there, signed modules, or that nothing else has the branch."""
    inputs, chosen = said.inputs, said.chosen
    if inputs.request.driver_origin != "auto":
        return "gpustrap_driver_origin asks for it"
    if said.staying:
        return "locked" if said.staying.locked else "it stays where it is from"
    if chosen.packages.module == "prebuilt":
        return "modules come with every kernel, signed for Secure Boot"
    alike = [c for c in said.every if c.key[:2] == chosen.key[:2] and c is not chosen and not c.packages.only_kept]
    unfit = next((c for c in alike if c.packages.module == "prebuilt" and c.unfit), None)
    if unfit:
        return unfit.unfit
    if all(c.unfit or c in said.passed for c in alike):
        branch = f"{chosen.branch.branch} {chosen.packages.flavour}"
        return f"no other origin known for {inputs.distro.name} has branch {branch}"
    return f"what NVIDIA names for {inputs.distro.name}"


def findings(said: Said) -> tuple[Finding, ...]:
    """A warning where NVIDIA no longer mends the branch."""
    branch = said.chosen.branch
    if branch.supported:
        return ()
    ended = f" in {branch.ends}" if branch.ends else ""
    advice = "plan for newer GPUs, or a distribution with a supported branch for these"
    return (
        Finding(
            code="driver-branch-ended",
            severity="warning",
            subject=f"driver {said.version.upstream or branch.branch}",
            message=f"NVIDIA ended branch {branch.branch}{ended}; only the distribution may still mend it",
            evidence=f"catalog: drivers, {branch.branch}: {branch.source}",
            advice=said.not_by_itself or advice,
        ),
    )


def reasoning(said: Said) -> Reasoning:
    """What each GPU takes, what was ruled out and by what, what else would do, and what was chosen."""
    machine = said.inputs.facts.os.architecture
    lines: list[str] = []
    for gpu in {gpu.name: gpu for gpu in reversed(said.gpus)}.values():
        kinds = " or ".join(dict.fromkeys(a.name for a in gpu.architectures))
        lines.insert(0, f"{gpu.name} ({kinds}) takes {limits_of(gpu, machine).words} ({gpu.row}).")
    lines += _grouped("Ruled out", ((c, c.unfit) for c in said.every if c.unfit))
    passed = ((c, why) for c, why in said.passed.items() if c is not said.chosen and not c.packages.only_kept)
    lines += _grouped("Passed over", passed)
    if said.installed and said.installed.candidate is not said.chosen:
        lines.append(f"{said.installed.words} is on the node and does not stay: {_moved(said)}.")
    others = [c for c in said.every if not c.unfit and c not in said.passed and c is not said.chosen]
    names = sorted(dict.fromkeys(c.words for c in others))
    if names:
        more = f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        lines.append(f"Also possible: {'; '.join(names[:SHOWN])}{more}.")
    lines.append(f"Chosen: {said.chosen.words}: {said.why} ({said.sources}).")
    if said.version.upstream:
        lines.append(f"Version {said.version.package or said.version.upstream}: {said.version.reason}.")
    return Reasoning(item="driver", sentences=tuple(lines))


def _grouped(title: str, found: Iterable[tuple[Candidate, str]]) -> list[str]:
    """One sentence for each reason, its branches in order."""
    groups: dict[str, set[str]] = {}
    for candidate, reason in found:
        groups.setdefault(reason, set()).add(f"{candidate.branch.branch} {candidate.packages.flavour}")
    return [f"{title}: {', '.join(sorted(names))}: {reason}." for reason, names in groups.items()]


def _moved(said: Said) -> str:
    """Why the node's own driver does not stay."""
    candidate = said.installed.candidate if said.installed else said.chosen
    if candidate.unfit:
        return candidate.unfit
    if said.staying and said.staying.locked:
        return "the lock has another"
    return "NVIDIA ended its branch" if not candidate.branch.supported else "policy has a newer branch"
