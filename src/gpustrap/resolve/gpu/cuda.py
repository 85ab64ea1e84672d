"""Decides the CUDA toolkits, and with the first of them cuDNN and NCCL."""

from __future__ import annotations

from dataclasses import replace

from gpustrap.catalog.schema_stack import Repository
from gpustrap.model.lock import Choice
from gpustrap.model.request import Request
from gpustrap.resolve.confidence import confidence
from gpustrap.resolve.gpu import cuda_words as words
from gpustrap.resolve.gpu.cuda_fit import Fit, fits, toolkit_package
from gpustrap.resolve.gpu.libraries import LibraryName, plan_library
from gpustrap.resolve.gpu.packages import installed, known, listed, locked_versions, or_newer
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Part
from gpustrap.resolve.repository import locked, variables

ROLE = "cuda_toolkit"


def plan_cuda(stack: Stack) -> Part:
    """Decide the variables of role cuda_toolkit."""
    inputs = stack.inputs
    wish = inputs.request.cuda_version
    if wish == "none":
        none = Choice(item="cuda", value="none", reason="gpustrap_cuda_version is none", source="request")
        return Part((none,), problems=words.alone(inputs))
    judged = fits(stack)
    repository = inputs.catalog.repository(inputs.distro.nvidia, inputs.facts.os.architecture)
    chosen = automatic(judged) if wish == "auto" else _one(judged, wish)
    if wish == "auto" and "cuda" not in inputs.upgrade:
        chosen = _one(judged, str(inputs.kept(ROLE, "cuda_toolkit_version"))) or chosen
    if chosen and repository:
        return _part(stack, judged, chosen, repository)
    if wish == "auto":
        return replace(words.without(stack, judged), problems=words.alone(inputs))
    return Part(problems=(words.unfit(stack, judged, wish),))


def automatic(judged: tuple[Fit, ...]) -> Fit | None:
    """The newest that the driver knows all of, else the newest that minor-version compatibility allows."""
    possible = [fit for fit in judged if fit.automatic]
    return next((fit for fit in possible if fit.native), next(iter(possible), None))


def _one(judged: tuple[Fit, ...], version: str) -> Fit | None:
    return next((fit for fit in judged if fit.version == version and not fit.unfit), None)


def _part(stack: Stack, judged: tuple[Fit, ...], chosen: Fit, repository: Repository) -> Part:
    inputs, toolkit = stack.inputs, chosen.toolkit
    name = toolkit_package(stack, toolkit)
    lock = locked_versions(inputs, "cuda", ROLE)
    version, whence = _version(stack, chosen, lock)
    further = _further(stack, judged, chosen, lock)
    if further.problems:
        return further
    if toolkit.version != inputs.kept(ROLE, "cuda_toolkit_version"):
        lock = {}  # of another toolkit: its libraries are built for that one
    newest = automatic(judged)
    choice = Choice(
        item="cuda",
        value=toolkit.version,
        reason=f"{words.why(stack, chosen, newest)}; {name} {version}: {whence}",
        source=f"catalog: cuda, {toolkit.version}",
        confidence=confidence(toolkit, repository, unread=not chosen.read),
        simulated=inputs.simulated,
    )
    libraries = [plan_library(stack, item, toolkit, lock) for item in _wanted(inputs.request)]
    packages = {name: version, **(further.variables or {})}
    for library in libraries:
        packages |= library.packages
    prefix = inputs.catalog.cuda.prefix.format(version=toolkit.version)
    own_size = () if installed(inputs, (name,)) else (("/usr/local", toolkit.size),)
    return Part(
        choices=(choice, *further.choices, *(library.choice for library in libraries)),
        variables={
            "cuda_toolkit_version": toolkit.version,
            "cuda_toolkit_packages": listed(packages),
            "cuda_toolkit_prefix": prefix,
            "cuda_toolkit_driver_pin": stack.driver.packages.origin == "distribution",
            "cuda_toolkit_proxy": inputs.proxy,
            **{f"{ROLE}_{key}": value for key, value in variables(inputs, repository).items()},
        },
        findings=(
            *words.findings(stack, chosen, name, prefix),
            *further.findings,
            *(f for library in libraries for f in library.findings),
        ),
        reasoning=(words.explain(stack, judged, chosen, choice), *(library.reasoning for library in libraries)),
        repositories=(locked(inputs, repository),),
        disk=(*own_size, *further.disk, *(size for library in libraries for size in library.disk)),
    )


def _further(stack: Stack, judged: tuple[Fit, ...], first: Fit, lock: dict[str, str]) -> Part:
    """The toolkits beside the first; the variables are their packages and versions."""
    inputs = stack.inputs
    asked = [v for v in dict.fromkeys(inputs.request.cuda_further_versions) if v != first.version]
    chosen = [fit for version in asked if (fit := _one(judged, version))]
    if unfit := [version for version in asked if version not in {fit.version for fit in chosen}]:
        problems = (words.unfit(stack, judged, version, words.FURTHER) for version in unfit)
        return Part(problems=tuple(problems))
    names = {fit.version: toolkit_package(stack, fit.toolkit) for fit in chosen}
    versions = {fit.version: _version(stack, fit, lock) for fit in chosen}
    prefixes = {fit.version: inputs.catalog.cuda.prefix.format(version=fit.version) for fit in chosen}
    choices = (
        Choice(
            item=f"cuda-{fit.version}",
            value=fit.version,
            reason=f"{words.FURTHER} asks for it; {names[fit.version]} {': '.join(versions[fit.version])}",
            source=f"catalog: cuda, {fit.version}",
            confidence=confidence(fit.toolkit, unread=not fit.read),
            simulated=inputs.simulated,
        )
        for fit in chosen
    )
    return Part(
        choices=tuple(choices),
        variables={names[fit.version]: versions[fit.version][0] for fit in chosen},
        findings=tuple(
            f for fit in chosen for f in words.findings(stack, fit, names[fit.version], prefixes[fit.version])
        ),
        disk=tuple(("/usr/local", fit.toolkit.size) for fit in chosen if not installed(inputs, (names[fit.version],))),
    )


def _wanted(request: Request) -> tuple[LibraryName, ...]:
    return (*(("cudnn",) if request.cudnn else ()), *(("nccl",) if request.nccl else ()))


def _version(stack: Stack, chosen: Fit, lock: dict[str, str]) -> tuple[str, str]:
    """The version of its package, and where that is from."""
    inputs, name = stack.inputs, toolkit_package(stack, chosen.toolkit)
    newest = next(iter(known(inputs, name)), "")
    if name in lock:
        return lock[name], f"locked{or_newer(newest, lock[name])}"
    if newest:
        return newest, "the newest that the node's package manager knows"
    template = inputs.catalog.cuda.package_version
    return template.format(newest=chosen.toolkit.newest), "the newest that the catalog knows"
