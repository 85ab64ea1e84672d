"""A plan for people: what was decided, why, what was noticed, and what that changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, NodePlan
from gpustrap.report.escape import one_line
from gpustrap.report.layout import Columns, Hanging
from gpustrap.report.next_step import next_step
from gpustrap.report.pending_text import not_installed
from gpustrap.report.verify_text import mark
from gpustrap.report.view import Tone

NAMES = 6
NOT_INSTALLED = "*"
TONES: dict[str, Tone] = {"warning": "warn", "note": "idle"}
Alike = tuple[tuple[Choice, ...], tuple[Finding, ...]]


def render(plans: Mapping[str, NodePlan], changes: Iterable[str], *, complete: bool = True) -> RenderableType:
    """Nodes with the same plan share a table, so that a rack of equal machines is one.

    Args:
        plans: The plans; of a refused one only what was noticed is shown here.
        changes: What they change in the lock.
        complete: Every node has a plan; only then can it be said that nothing changes.
    """
    alike: dict[Alike, list[str]] = {}
    for name in sorted(plans):
        plan = plans[name]
        choices = plan.lock.choices if plan.lock else ()
        if choices or plan.findings:
            alike.setdefault((choices, plan.findings), []).append(name)
    parts: list[RenderableType] = []
    for (choices, findings), names in alike.items():
        parts += [_title(names, planned=bool(choices)), *([_table(choices)] if choices else ())]
        parts += [_findings(findings), Text()] if findings else [Text()]
    pending = not_installed({name: plan.lock for name, plan in plans.items() if plan.lock})
    if pending:
        parts += [Hanging(pending, f"{NOT_INSTALLED} "), Text()]
    lines = list(changes)
    if lines:
        parts += [Text("Changes:"), *(Hanging(one_line(line), "  ", "      ") for line in lines)]
    elif complete:
        parts.append(Text("Nothing changes."))
    return Group(*parts)


def _marks(choice: Choice) -> str:
    """What a person must know of a choice beside its reason, in parentheses; empty where nothing is."""
    said = {"simulated": choice.simulated, "recalled": choice.confidence == "recalled"}
    words = [word for word, holds in said.items() if holds]
    return f" ({', '.join(words)})" if words else ""


def _title(names: list[str], *, planned: bool) -> Hanging:
    shown = ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")
    return Hanging(Text.assemble((one_line(shown), "bold"), "" if planned else " (no plan)"), "", "  ")


def _table(choices: tuple[Choice, ...]) -> Columns:
    rows = []
    for choice in choices:
        item = f"{choice.item} {NOT_INSTALLED}" if choice.pending else choice.item
        texts = (item, choice.value or "open", choice.reason + _marks(choice))
        rows.append([one_line(text) for text in texts])
    return Columns(("Choice", "Value", "Why"), rows, named=False)


def _findings(findings: tuple[Finding, ...]) -> Group:
    """Warnings first, with what to do; a note is one line."""
    lines = []
    width = max(len(mark(TONES[f.severity], f.severity)) for f in findings) + 2
    for finding in sorted(findings, key=lambda f: f.severity != "warning"):
        text = Text(headline(finding))
        if finding.severity == "warning" and finding.advice:
            text.append(f"\n{next_step(one_line(finding.advice))}", style="dim")
        sign = mark(TONES[finding.severity], finding.severity)
        sign.pad_right(width - len(sign))
        lines.append(Hanging(text, sign))
    return Group(*lines)


def headline(finding: Finding) -> str:
    """Subject and message, in one line."""
    return one_line(f"{finding.subject}: {finding.message}" if finding.subject else finding.message)
