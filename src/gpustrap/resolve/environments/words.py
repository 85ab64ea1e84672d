"""What is said of the decision about an environment's build."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.catalog.schema_gpu import DriverBranch
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.resolve.environments.fit import Fit
from gpustrap.resolve.environments.target import Target
from gpustrap.resolve.gpu.boards import counted
from gpustrap.resolve.gpu.packages import numbers


def reason(target: Target, chosen: Fit, newest: Fit | None) -> str:
    """Why this build."""
    if newest and chosen is not newest:
        there = "is available" if numbers(newest.row.version) > numbers(chosen.row.version) else "would be chosen now"
        return f"locked; {newest.row.version} {newest.row.variant} {there}: gpustrap plan --upgrade takes it"
    verified = "verified " if chosen.row.confidence == "verified" else ""
    if target.stack is None:
        without = "gpustrap_gpu is none" if target.inputs.request.gpu == "none" else "the node has no NVIDIA GPU"
        return f"the newest {verified}build for the processor; {without}"
    of = "its GPUs" if target.wish.gpus else "every GPU of the node"
    best = f"the newest {verified}build that has code for {of}"
    branch = target.stack.driver.branch.branch
    if not chosen.native:
        return f"{best} and runs on driver branch {branch} by minor-version compatibility"
    return f"{best} and whose CUDA driver branch {branch} knows"


def reasoning(target: Target, judged: tuple[Fit, ...], chosen: Fit, why: str) -> Reasoning:
    """How it was chosen, sentence by sentence."""
    row, lines = chosen.row, []
    if target.stack:
        lines.append(f"Its GPUs have compute capability {', '.join(target.stack.compute_capabilities)}.")
    for place, fit in enumerate(judged):
        if place < judged.index(chosen) or numbers(fit.row.version) > numbers(row.version):
            lines.append(f"Passed over: {fit.called}: {_passed_over(target, fit, chosen)}.")
    lines.append(f"Chosen: {chosen.called}: {why} ({row.row}: {row.source}).")
    if target.stack:
        lines += _about_code(target, chosen)
    lines.append(f"Python {chosen.python.version}: {chosen.python.reason}.")
    lines += [f"It needs {constraint} besides." for constraint in row.constraints]
    return Reasoning(item=target.item, sentences=tuple(lines))


def _about_code(target: Target, chosen: Fit) -> Iterator[str]:
    row = chosen.row
    code = ", ".join(row.compute[target.inputs.facts.os.architecture])
    ptx = f", and PTX from {row.ptx} on" if row.ptx else ""
    yield f"It has code for {code}{ptx}; code for 8.0 runs on 8.6 and 8.9, too, but on no other major."
    if target.stack and not chosen.native:
        branch, major = target.stack.driver.branch, row.cuda.partition(".")[0]
        yield (
            f"Its CUDA {row.cuda} is newer than driver branch {branch.branch} knows ({branch.cuda}): "
            f"minor-version compatibility of CUDA {major} lets it run."
        )


def _passed_over(target: Target, fit: Fit, chosen: Fit) -> str:
    """Why another build was not taken, as the end of a sentence."""
    if fit.against:
        return fit.against
    if fit.row.confidence == "recalled" and chosen.row.confidence == "verified":
        return "recalled, not verified"
    if target.stack and chosen.native and not fit.native:
        branch = target.stack.driver.branch
        return f"its CUDA {fit.row.cuda} is newer than driver branch {branch.branch} knows ({branch.cuda})"
    return "the locked one stays"


def findings(target: Target, chosen: Fit) -> Iterator[Finding]:
    """What a person should know of the build that was chosen."""
    if target.stack and chosen.row.confidence == "recalled":  # of one for the processor, its lock proves the rest
        yield _recalled(target, chosen)
    if chosen.translated:
        yield _doubted(target, chosen) if chosen.doubted else _translated(target, chosen)
    if target.stack and not chosen.native:
        yield _not_native(target, chosen, target.stack.driver.branch)


def _recalled(target: Target, chosen: Fit) -> Finding:
    return Finding(
        code="wheel-recalled",
        severity="warning",
        subject=_subject(target, chosen),
        message="which GPUs it has code for is recalled: nobody read it at its source",
        evidence=f"{chosen.row.row}: {chosen.row.source}",
        advice="let gpustrap verify compute with it on every GPU before anybody rests on it",
    )


def _translated(target: Target, chosen: Fit) -> Finding:
    return Finding(
        code="wheel-only-ptx",
        severity="note",
        subject=_subject(target, chosen),
        message=f"it has no machine code for {counted(tuple(gpu.name for gpu in chosen.translated))}: the driver "
        "makes it of PTX when a program first runs, which may take minutes",
        evidence=_code(target, chosen),
        advice="let the first run finish; later ones take the code from ~/.nv/ComputeCache",
    )


def _doubted(target: Target, chosen: Fit) -> Finding:
    return Finding(
        code="wheel-ptx-fails",
        severity="warning",
        subject=_subject(target, chosen),
        message=f"it has no machine code for {counted(tuple(gpu.name for gpu in chosen.translated))}, and what the "
        f"driver makes of its PTX was reported to fail: {chosen.row.ptx_fails}",
        evidence=_code(target, chosen),
        advice="let gpustrap verify compute with it before anybody rests on it; or take another framework there",
    )


def _not_native(target: Target, chosen: Fit, branch: DriverBranch) -> Finding:
    row = chosen.row
    major = next(m for m in target.inputs.catalog.cuda.majors if m.major == row.cuda.partition(".")[0])
    return Finding(
        code="wheel-minor-compatibility",
        severity="note",
        subject=_subject(target, chosen),
        message=f"its CUDA {row.cuda} is newer than driver branch {branch.branch} knows ({branch.cuda}): it runs by "
        "minor-version compatibility, but nothing that it compiles to PTX does",
        evidence=f"catalog: cuda, major {major.major}: {major.source}",
        advice="let gpustrap verify compute with it; a later driver branch knows all of it",
    )


def _subject(target: Target, chosen: Fit) -> str:
    return f"environment {target.name} ({chosen.called})"


def _code(target: Target, chosen: Fit) -> str:
    row = chosen.row
    return f"{row.row}: {', '.join(row.compute[target.inputs.facts.os.architecture])}, PTX {row.ptx}"
