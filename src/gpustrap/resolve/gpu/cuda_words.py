"""What is said of the decision about the CUDA toolkit."""

from __future__ import annotations

from collections.abc import Iterable

from gpustrap.errors import Problem
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.resolve.gpu.boards import counted
from gpustrap.resolve.gpu.cuda_fit import Fit, driver_for, without_code
from gpustrap.resolve.gpu.packages import numbers, or_newer
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Inputs, Part

FURTHER = "gpustrap_cuda_further_versions"


def why(stack: Stack, chosen: Fit, newest: Fit | None) -> str:
    """Why this toolkit: asked for, locked, or the newest that can be."""
    branch = stack.driver.branch.branch
    how = f"driver branch {branch} knows all of it"
    if not chosen.native:
        how = f"driver branch {branch} runs it by minor-version compatibility"
    if stack.inputs.request.cuda_version != "auto":
        unread = "" if chosen.automatic else f", although {chosen.against}"
        return f"gpustrap_cuda_version asks for it, and {how}{unread}"
    if newest is not chosen:
        newer = newest and numbers(newest.version) > numbers(chosen.version)
        return f"locked, and {how}{or_newer(newest.version if newest and newer else '', chosen.version)}"
    return f"the newest that fits: all GPUs can use it, and {how}"


def explain(stack: Stack, judged: tuple[Fit, ...], chosen: Fit, choice: Choice) -> Reasoning:
    """What driver and GPUs allow, which newer toolkits were passed over, and what was chosen."""
    branch = stack.driver.branch
    lines = [
        f"Driver branch {branch.branch} knows CUDA up to {branch.cuda} (catalog: drivers, {branch.branch}).",
        f"The GPUs have compute capability {', '.join(stack.compute_capabilities)}.",
    ]
    newer = (fit for fit in judged if numbers(fit.version) > numbers(chosen.version))
    lines += [f"Passed over: {line}." for line in _grouped((fit, _passed_over(stack, fit)) for fit in newer)]
    lines.append(f"Chosen: {chosen.version}: {choice.reason} ({choice.source}: {chosen.toolkit.source}).")
    return Reasoning(item="cuda", sentences=tuple(lines))


def _grouped(reasons: Iterable[tuple[Fit, str]]) -> list[str]:
    """``13.4, 13.3: why``, a line for each reason."""
    versions: dict[str, list[str]] = {}
    for fit, reason in reasons:
        versions.setdefault(reason, []).append(fit.version)
    return [f"{', '.join(those)}: {reason}" for reason, those in versions.items()]


def _passed_over(stack: Stack, fit: Fit) -> str:
    if fit.against:
        return fit.against
    if stack.inputs.request.cuda_version != "auto":
        return "not asked for"
    if not fit.native:
        return f"newer than driver branch {stack.driver.branch.branch} knows"
    return "the locked one stays"


def findings(stack: Stack, chosen: Fit, package: str, prefix: str) -> tuple[Finding, ...]:
    """What a person should know of the toolkit that was chosen."""
    found = []
    branch, toolkit = stack.driver.branch, chosen.toolkit
    if not chosen.native:
        major = next(row for row in stack.inputs.catalog.cuda.majors if row.major == toolkit.version.partition(".")[0])
        found.append(
            Finding(
                code="cuda-minor-compatibility",
                severity="note",
                subject=f"CUDA {toolkit.version}",
                message=f"it is newer than driver branch {branch.branch} knows ({branch.cuda}): what it compiles runs "
                "by minor-version compatibility, except for PTX, which this driver cannot compile",
                evidence=f"catalog: cuda, major {major.major}: {major.source}",
                advice="compile for the GPUs themselves: nvcc -arch=native",
            )
        )
    own = [i for i in stack.inputs.facts.installs if i.what == "cuda"]
    packaged = any(i.origin.startswith("package ") and numbers(i.version)[:2] == numbers(toolkit.version) for i in own)
    if not packaged and any(i.origin == "tree" and i.path == prefix for i in own):
        found.append(
            Finding(
                code="cuda-not-packaged",
                severity="warning",
                subject=prefix,
                message=f"a CUDA toolkit lies there that came in no package, and {package} would be put over it",
                evidence="read on the node",
                advice=f"on the node: sudo {prefix}/bin/cuda-uninstaller; or keep it: gpustrap_cuda_version: none",
            )
        )
    return tuple(found)


def without(stack: Stack, judged: tuple[Fit, ...]) -> Part:
    """No toolkit may be chosen by itself: a warning, as frameworks bring their own CUDA."""
    name = stack.inputs.distro.name
    advice = "set gpustrap_cuda_version: none if it needs no toolkit; frameworks bring a CUDA of their own"
    if possible := [fit for fit in judged if not fit.unfit]:
        likely = max(possible, key=lambda fit: (numbers(fit.version)[0], fit.native, numbers(fit.version)))
        advice = f'set gpustrap_cuda_version: "{likely.version}" if NVIDIA\'s repository for {name} has it; else none'
    lines = _grouped((fit, fit.against) for fit in judged)
    finding = Finding(
        code="cuda-none",
        severity="warning",
        subject="CUDA toolkit",
        message=f"none is planned: no toolkit that GPUs and driver can use is known to be there for {name}",
        evidence="\n".join(f"CUDA {line}" for line in lines),
        advice=advice,
    )
    reason = "no toolkit that GPUs and driver can use is known to be there"
    choice = Choice(item="cuda", value="none", reason=reason, source="catalog: cuda")
    sentences = (*(f"Passed over: {line}." for line in lines), "Chosen: none.")
    return Part((choice,), findings=(finding,), reasoning=(Reasoning(item="cuda", sentences=sentences),))


def alone(inputs: Inputs) -> tuple[Problem, ...]:
    """The refusal of toolkits beside one that is not there."""
    asked = inputs.request.cuda_further_versions
    if not asked:
        return ()
    message = f"{FURTHER} is {', '.join(asked)}, and no first toolkit is planned that they could stand beside"
    return (inputs.problem("cuda-unfit", message, f'set gpustrap_cuda_version: "{asked[0]}"'),)


def unfit(stack: Stack, judged: tuple[Fit, ...], wish: str, variable: str = "gpustrap_cuda_version") -> Problem:
    """The refusal of a toolkit that was asked for."""
    inputs = stack.inputs
    others = " or ".join(f'"{fit.version}"' for fit in judged if not fit.unfit)
    ways = [f"set {variable} to {others}"] if others and variable != FURTHER else []
    ways.append(f"leave {wish} out of {FURTHER}" if variable == FURTHER else f"set {variable}: auto")
    fit = next((fit for fit in judged if fit.version == wish), None)
    if fit is None:
        message = f"{variable} is {wish}: the catalog knows no such toolkit"
        every = f"catalog: cuda: {', '.join(fit.version for fit in reversed(judged))}"
        return inputs.problem("cuda-unfit", message, "; or ".join(ways), evidence=every)
    message = f"{variable} is {wish}: {fit.unfit}"
    evidence = [f"catalog: cuda, {wish}: {fit.toolkit.source}"]
    if fit.by == "gpus":
        lacking = without_code(stack, fit.toolkit)
        evidence += [f"{gpu.label}: compute capability {' or '.join(gpu.compute_capabilities)}" for gpu in lacking]
        evidence.append(f"CUDA {wish} compiles for {', '.join(fit.toolkit.compute)}")
        if len(lacking) < len(stack.gpus):
            ways.append(f"take {counted(tuple(gpu.name for gpu in lacking))} out of the node")
    if fit.by == "driver":
        evidence.append(f"driver branch {stack.driver.branch.branch} knows CUDA up to {stack.driver.branch.cuda}")
        needed = driver_for(stack, wish)
        ways += [f'set gpustrap_driver_branch to "{needed}" or newer'] if needed else []
    return inputs.problem("cuda-unfit", message, "; or ".join(ways), evidence="\n".join(evidence))
