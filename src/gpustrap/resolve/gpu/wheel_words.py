"""What is said of the decision about a framework's build."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.model.plan import Finding
from gpustrap.resolve.gpu.boards import counted
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.gpu.wheel_fit import Fit


def reason(stack: Stack, chosen: Fit) -> str:
    """Why this build, where it is not just the locked one."""
    verified = "verified " if chosen.row.confidence == "verified" else ""
    newest = f"the newest {verified}build that has code for every GPU of the node"
    branch = stack.driver.branch.branch
    if not chosen.native:
        return f"{newest} and runs on driver branch {branch} by minor-version compatibility"
    return f"{newest} and whose CUDA driver branch {branch} knows"


def passed_over(stack: Stack, fit: Fit, chosen: Fit) -> str:
    """Why another build was not taken, as the end of a sentence."""
    if fit.against:
        return fit.against
    if fit.row.confidence == "recalled":
        return "recalled, not verified"
    if chosen.native and not fit.native:
        branch = stack.driver.branch
        return f"its CUDA {fit.row.cuda} is newer than driver branch {branch.branch} knows ({branch.cuda})"
    return "the locked one stays"


def findings(stack: Stack, chosen: Fit) -> Iterator[Finding]:
    """What a person should know of the build that was chosen."""
    if chosen.row.confidence == "recalled":
        yield _recalled(chosen)
    if chosen.translated:
        yield _doubted(stack, chosen) if chosen.doubted else _translated(stack, chosen)
    if not chosen.native:
        yield _not_native(stack, chosen)


def _recalled(chosen: Fit) -> Finding:
    row = chosen.row
    return Finding(
        code="wheel-recalled",
        severity="warning",
        subject=f"{row.framework} {row.version}",
        message="which GPUs it has code for is recalled: nobody read it at its source",
        evidence=f"{row.row}: {row.source}",
        advice="let gpustrap verify compute with it on every GPU before anybody rests on it",
    )


def _translated(stack: Stack, chosen: Fit) -> Finding:
    row = chosen.row
    return Finding(
        code="wheel-only-ptx",
        severity="note",
        subject=f"{row.framework} {row.version}",
        message=f"it has no machine code for {counted(tuple(gpu.name for gpu in chosen.translated))}: the driver "
        "makes it of PTX when a program first runs, which may take minutes",
        evidence=f"{row.row}: {', '.join(row.compute[stack.inputs.facts.os.architecture])}, PTX {row.ptx}",
        advice="let the first run finish; later ones take the code from ~/.nv/ComputeCache",
    )


def _doubted(stack: Stack, chosen: Fit) -> Finding:
    row = chosen.row
    return Finding(
        code="wheel-ptx-fails",
        severity="warning",
        subject=f"{row.framework} {row.version}",
        message=f"it has no machine code for {counted(tuple(gpu.name for gpu in chosen.translated))}, and what the "
        f"driver makes of its PTX was reported to fail: {row.ptx_fails}",
        evidence=f"{row.row}: {', '.join(row.compute[stack.inputs.facts.os.architecture])}, PTX {row.ptx}",
        advice="let gpustrap verify compute with it before anybody rests on it; or take another framework there",
    )


def _not_native(stack: Stack, chosen: Fit) -> Finding:
    row, branch = chosen.row, stack.driver.branch
    major = next(m for m in stack.inputs.catalog.cuda.majors if m.major == row.cuda.partition(".")[0])
    return Finding(
        code="wheel-minor-compatibility",
        severity="note",
        subject=f"{row.framework} {row.version}",
        message=f"its CUDA {row.cuda} is newer than driver branch {branch.branch} knows ({branch.cuda}): it runs by "
        "minor-version compatibility, but nothing that it compiles to PTX does",
        evidence=f"catalog: cuda, major {major.major}: {major.source}",
        advice="let gpustrap verify compute with it; a later driver branch knows all of it",
    )
