"""Decides the CUDA toolkit, and with it cuDNN and NCCL."""

from __future__ import annotations

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
        return Part((Choice(item="cuda", value="none", reason="gpustrap_cuda_version is none", source="request"),))
    judged = fits(stack)
    repository = inputs.catalog.repository(inputs.distro.nvidia, inputs.facts.os.architecture)
    chosen = automatic(judged) if wish == "auto" else _one(judged, wish)
    if wish == "auto" and "cuda" not in inputs.upgrade:
        chosen = _one(judged, str(inputs.kept(ROLE, "cuda_toolkit_version"))) or chosen
    if chosen and repository:
        return _part(stack, judged, chosen, repository)
    if wish == "auto":
        return words.without(stack, judged)
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
    if name not in lock:
        lock = {}  # of another toolkit: its libraries are built for that one
    version, whence = _version(stack, chosen, lock)
    newest = automatic(judged)
    choice = Choice(
        item="cuda",
        value=toolkit.version,
        reason=f"{words.why(stack, chosen, newest)}; {name} {version}: {whence}",
        source=f"catalog: cuda, {toolkit.version}",
        confidence=confidence(toolkit, repository, unread=not chosen.read),
        simulated=inputs.request.simulated,
    )
    libraries = [plan_library(stack, item, toolkit, lock) for item in _wanted(inputs.request)]
    packages = {name: version}
    for library in libraries:
        packages |= library.packages
    prefix = inputs.catalog.cuda.prefix.format(version=toolkit.version)
    own_size = () if installed(inputs, (name,)) else (("/usr/local", toolkit.size),)
    return Part(
        choices=(choice, *(library.choice for library in libraries)),
        variables={
            "cuda_toolkit_version": toolkit.version,
            "cuda_toolkit_packages": listed(packages),
            "cuda_toolkit_prefix": prefix,
            "cuda_toolkit_driver_pin": stack.driver.packages.origin == "distribution",
            **{f"{ROLE}_{key}": value for key, value in variables(inputs, repository).items()},
        },
        findings=(
            *words.findings(stack, chosen, name, prefix),
            *(f for library in libraries for f in library.findings),
        ),
        reasoning=(words.explain(stack, judged, chosen, choice), *(library.reasoning for library in libraries)),
        repositories=(locked(inputs, repository),),
        disk=(*own_size, *(size for library in libraries for size in library.disk)),
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
