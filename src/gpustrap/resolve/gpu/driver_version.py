"""Which exact version of a driver: asked for, locked, on the node, in its apt, or in the catalog, in this order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpustrap.errors import Problem
from gpustrap.resolve.gpu.candidates import Candidate, fill
from gpustrap.resolve.gpu.components import components_off
from gpustrap.resolve.gpu.installed import Installed, is_nvidias, upstream_version
from gpustrap.resolve.parts import Inputs

ASKED = "gpustrap_driver_version asks for it"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the driver's packages; both empty where only the node's package manager could tell, and it cannot.

    Attributes:
        upstream: NVIDIA's own.
        package: That of the packages.
        reason: Where it is from.
        from_catalog: Only the catalog knows it, and nobody read it in that origin.
    """

    upstream: str
    package: str
    reason: str
    from_catalog: bool = False


def driver_version(inputs: Inputs, chosen: Candidate, *, locked: str, installed: Installed | None) -> Version | Problem:
    """The version to take.

    Args:
        inputs: The node, the request, the catalog.
        chosen: What was decided.
        locked: The locked version of its packages; empty where nothing is to be kept.
        installed: The node's own driver, where it is what was decided.
    """
    wish = inputs.request.driver_version
    stays = locked or (installed.package_version if installed else "")
    if wish and upstream_version(stays) != wish:
        return _wished(inputs, chosen, wish)
    if stays:
        reason = _if_newer(inputs, chosen, locked, "locked") if locked else "it is installed and fits"
        seen = chosen.packages.seen_of(chosen.branch.branch)
        read = installed or stays in available(inputs, chosen) or upstream_version(stays) == seen
        return Version(upstream_version(stays), stays, ASKED if wish else reason, from_catalog=not read)
    known = available(inputs, chosen)
    if known:
        return Version(upstream_version(known[0]), known[0], "the newest of the branch that the node's apt knows")
    return _from_catalog(inputs, chosen)


def available(inputs: Inputs, chosen: Candidate) -> tuple[str, ...]:
    """The versions of its branch that the node's apt has, newest first; none where they would be another origin's."""
    manager, leading = inputs.facts.package_manager, fill(inputs, chosen.packages.leading, chosen.branch)
    archive = manager.candidate_origins.get(leading, "")
    if archive and is_nvidias(archive, inputs.request.nvidia_repository) != (chosen.packages.origin == "nvidia"):
        return ()
    known = manager.versions.get(leading) or tuple(filter(None, (manager.candidates.get(leading),)))
    return tuple(v for v in known if upstream_version(v).partition(".")[0] == chosen.branch.branch)


def ordered(version: str) -> tuple[int, ...]:
    """``580.95.05`` as numbers, to compare."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _wished(inputs: Inputs, chosen: Candidate, wish: str) -> Version | Problem:
    known = available(inputs, chosen)
    found = next((v for v in known if upstream_version(v) == wish), "")
    if found:
        return Version(wish, found, ASKED)
    if chosen.packages.version and not known:
        return Version(wish, fill(inputs, chosen.packages.version, chosen.branch, wish), ASKED, from_catalog=True)
    if inputs.offline or components_off(inputs.facts, chosen.packages):
        return Version(wish, "", ASKED)
    message = f"gpustrap_driver_version is {wish}: apt on the node has no such version of branch {chosen.branch.branch}"
    evidence = f"it has {', '.join(known)}" if known else ""
    remedy = "leave gpustrap_driver_version out, or take one that the node's apt has"
    return inputs.problem("version-unavailable", message, remedy, evidence=evidence)


def _if_newer(inputs: Inputs, chosen: Candidate, version: str, reason: str) -> str:
    newest = next(iter(available(inputs, chosen)), version)
    newer = ordered(upstream_version(newest)) > ordered(upstream_version(version))
    return reason + (f"; {newest} is available: gpustrap plan --upgrade takes it" if newer else "")


def _from_catalog(inputs: Inputs, chosen: Candidate) -> Version | Problem:
    row = chosen.packages
    seen = row.seen_of(chosen.branch.branch)
    newest = seen or (chosen.branch.newest if row.origin == "nvidia" else "")
    if row.version and newest:
        package = fill(inputs, row.version, chosen.branch, newest)
        return Version(newest, package, "the newest of the branch that the catalog knows", from_catalog=not seen)
    if inputs.offline:
        return Version("", "", "its version is left open: only the node's package manager knows")
    off = components_off(inputs.facts, row)
    if off:
        return Version("", "", f"its version is left open: {' and '.join(off)} are not among the node's sources yet")
    leading, place = fill(inputs, row.leading, chosen.branch), f"the {row.repository} repository"
    message = f"apt on the node knows no version of {leading}"
    remedy = f"on {inputs.name}: sudo apt-get update; then gpustrap plan {inputs.name}"
    if row.version:
        message += ", and the catalog knows none either"
        read = any(is_nvidias(s.uri, inputs.request.nvidia_repository) for s in inputs.facts.package_manager.sources)
        named = f"set gpustrap_driver_version to one that {place} has"
        remedy = f"{named}; or {remedy}" if read else named
    return inputs.problem("package-unavailable", message, remedy, evidence=row.row)


def can_be_had(inputs: Inputs, candidate: Candidate) -> bool:
    """Whether a version of it is known, once the request asks for nothing else."""
    if "gpustrap_driver_version" in candidate.unlike:
        inputs = replace(inputs, request=inputs.request.model_copy(update={"driver_version": None}))
    return isinstance(driver_version(inputs, candidate, locked="", installed=None), Version)
