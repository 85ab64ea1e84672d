"""Decides frameworks, each in an environment of its own: the newest build whose code covers every GPU of the node."""

from __future__ import annotations

from typing import Any

from gpustrap.catalog.schema_stack import Wheel
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.model.request import Request
from gpustrap.resolve.confidence import confidence
from gpustrap.resolve.gpu import wheel_words as words
from gpustrap.resolve.gpu.boards import counted
from gpustrap.resolve.gpu.packages import numbers
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.gpu.wheel_fit import Fit, best, wheel_fits
from gpustrap.resolve.parts import Part

DEFAULT = Request().frameworks


def plan_frameworks(stack: Stack) -> Part:
    """Decide the variables of role ml_environments."""
    request = stack.inputs.request
    if not request.frameworks:
        return Part()
    if not request.conda:
        return _without_conda(request)
    parts = [_framework(stack, name) for name in dict.fromkeys(request.frameworks)]
    environments = [part.variables for part in parts if part.variables]
    return Part(
        choices=tuple(choice for part in parts for choice in part.choices),
        variables={"ml_environments_environments": environments} if environments else None,
        problems=tuple(problem for part in parts for problem in part.problems),
        findings=tuple(finding for part in parts for finding in part.findings),
        reasoning=tuple(line for part in parts for line in part.reasoning),
        disk=tuple(size for part in parts for size in part.disk),
    )


def _without_conda(request: Request) -> Part:
    if request.frameworks == DEFAULT:
        return Part()
    finding = Finding(
        code="frameworks-need-conda",
        severity="note",
        subject=", ".join(request.frameworks),
        message="none is planned: each framework gets a conda environment, and gpustrap_conda is false",
        evidence="request",
        advice="set gpustrap_conda: true, or leave gpustrap_frameworks out",
    )
    return Part(findings=(finding,))


def _framework(stack: Stack, name: str) -> Part:
    """One framework's share; its variables are its environment."""
    judged = wheel_fits(stack, name)
    newest = best(judged)
    chosen = _kept(stack, judged) or newest
    if chosen is None:
        return _none(stack, name, judged)
    row = chosen.row
    reason = words.reason(stack, chosen)
    if chosen is not newest and newest:
        there = "is available" if numbers(newest.row.version) > numbers(row.version) else "would be chosen now"
        reason = f"locked; {newest.row.version} {newest.row.variant} {there}: gpustrap plan --upgrade takes it"
    choice = Choice(
        item=name,
        value=f"{row.version} {row.variant}",
        reason=reason,
        source=row.row,
        confidence=confidence(row, unread=chosen.doubted),
        simulated=stack.inputs.simulated,
    )
    return Part(
        choices=(choice,),
        variables=_environment(row, _python(stack, row)),
        findings=tuple(words.findings(stack, chosen)),
        reasoning=(_reasoning(stack, judged, chosen, choice),),
        disk=((stack.inputs.request.conda_prefix, row.size),),
    )


def _environment(row: Wheel, python: str) -> dict[str, Any]:
    return {
        "name": row.framework,
        "framework": row.framework,
        "version": row.version,
        "python": python,
        "requirement": row.requirement,
        "constraints": list(row.constraints),
        "index": row.index,
    }


def _kept(stack: Stack, judged: tuple[Fit, ...]) -> Fit | None:
    """The locked build, where it is to stay, the catalog still has it and it still fits."""
    return next((fit for fit in judged if not fit.against and _locked_python(stack, fit.row)), None)


def _locked_python(stack: Stack, row: Wheel) -> str:
    """The Python of a build's environment in the lock; empty where it holds another build, or is to be upgraded."""
    if "frameworks" in stack.inputs.upgrade:
        return ""
    locked = stack.inputs.kept("ml_environments", "ml_environments_environments") or ()
    return next((python for python in row.pythons if _environment(row, python) in locked), "")


def _python(stack: Stack, row: Wheel) -> str:
    """The locked one; else by policy: other packages often have no builds for the newest yet."""
    by_policy = row.pythons[-1] if stack.inputs.request.policy == "latest" else row.pythons[-2:][0]
    return _locked_python(stack, row) or by_policy


def _reasoning(stack: Stack, judged: tuple[Fit, ...], chosen: Fit, choice: Choice) -> Reasoning:
    row, branch = chosen.row, stack.driver.branch
    lines = [f"The GPUs have compute capability {', '.join(stack.compute_capabilities)}."]
    for place, fit in enumerate(judged):
        if place < judged.index(chosen) or numbers(fit.row.version) > numbers(row.version):
            why = words.passed_over(stack, fit, chosen)
            lines.append(f"Passed over: {row.framework} {fit.row.version} {fit.row.variant}: {why}.")
    lines.append(f"Chosen: {choice.value}: {choice.reason} ({choice.source}: {row.source}).")
    code = ", ".join(row.compute[stack.inputs.facts.os.architecture])
    ptx = f", and PTX from {row.ptx} on" if row.ptx else ""
    lines.append(f"It has code for {code}{ptx}; code for 8.0 runs on 8.6 and 8.9, too, but on no other major.")
    if not chosen.native:
        major = row.cuda.partition(".")[0]
        lines.append(
            f"Its CUDA {row.cuda} is newer than driver branch {branch.branch} knows ({branch.cuda}): "
            f"minor-version compatibility of CUDA {major} lets it run."
        )
    lines.append(f"Python {_python(stack, row)}: {_python_reason(stack, row)}.")
    lines += [f"It needs {constraint} besides." for constraint in row.constraints]
    return Reasoning(item=row.framework, sentences=tuple(lines))


def _python_reason(stack: Stack, row: Wheel) -> str:
    newest = row.pythons[-1]
    if _locked_python(stack, row):
        return f"locked; it has builds up to {newest}"
    if _python(stack, row) == newest:
        return "the newest that it has a build for"
    return f"one behind {newest}, the newest that it has a build for, so that other packages have builds, too"


def _none(stack: Stack, name: str, judged: tuple[Fit, ...]) -> Part:
    """No build fits: a refusal where somebody asked for it, else a warning."""
    inputs = stack.inputs
    gpus = counted(tuple(gpu.name for gpu in stack.gpus))
    branch = stack.driver.branch.branch
    message = f"no build of {name} that is known runs on all its GPUs ({gpus}) with driver {branch}"
    evidence = "\n".join(f"{name} {fit.row.version} {fit.row.variant}: {fit.against}" for fit in judged)
    evidence = evidence or f"catalog: frameworks has no {name} for {inputs.facts.os.architecture}"
    ways = "; or ".join(_ways_out(stack, name, judged))
    if inputs.request.frameworks != DEFAULT:
        return Part(problems=(inputs.problem("no-wheel", message, ways, evidence=evidence),))
    finding = Finding(
        code="no-wheel", severity="warning", subject=name, message=message, evidence=evidence, advice=ways
    )
    choice = Choice(item=name, value="none", reason=message, source="catalog: frameworks")
    return Part((choice,), findings=(finding,))


def _ways_out(stack: Stack, name: str, judged: tuple[Fit, ...]) -> list[str]:
    ways = []
    branches = [fit.driver for fit in judged if fit.driver.isdigit() and not fit.lacking]
    if branches:
        branch = min(branches, key=int)
        ways.append(f'set gpustrap_driver_branch to "{branch}" or newer, if all GPUs take it')
    for gpu in dict.fromkeys(gpu.name for gpu in stack.gpus):
        rest = tuple(g for g in stack.gpus if g.name != gpu)
        if rest and best(wheel_fits(stack, name, rest)):
            ways.append(f"take {counted(tuple(g.name for g in stack.gpus if g.name == gpu))} out of the node")
    if stack.inputs.request.frameworks == DEFAULT:
        ways.append("build it from source for these GPUs, or set gpustrap_frameworks: [] to plan without it")
    else:
        ways.append(f"leave {name} out of gpustrap_frameworks")
    return ways
