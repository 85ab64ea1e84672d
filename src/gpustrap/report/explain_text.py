"""How the plan of a node came about, in sentences: every choice with what it rests on, and everything noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.errors import Problem
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, NodePlan
from gpustrap.report.escape import one_line, visible
from gpustrap.report.layout import Hanging
from gpustrap.report.next_step import next_step
from gpustrap.report.pending_text import not_installed
from gpustrap.report.plan_text import TONES, headline
from gpustrap.report.verify_text import mark

EVIDENCE_LINES = 20


def render(plans: Mapping[str, NodePlan]) -> RenderableType:
    """A block for each node, refused ones, too.

    Args:
        plans: The plans.
    """
    return Group(*(line for name in sorted(plans) for line in _node(name, plans[name])))


def _node(name: str, plan: NodePlan) -> Iterator[RenderableType]:
    yield Text.assemble((one_line(name), "bold"), "" if plan.lock else ": refused")
    told = {reasoning.item: reasoning.sentences for reasoning in plan.reasoning}
    for choice in plan.lock.choices if plan.lock else ():
        yield from _choice(choice, told.pop(choice.item, ()))
    for item, sentences in told.items():  # what led to no choice of its own, and all that led to a refusal
        yield from (Text(), Text(one_line(item), style="bold"), *_sentences(sentences))
    noticed = [finding for finding in plan.findings if not _told(finding, plan.problems)]
    if noticed:
        yield from (Text(), Text("What was noticed", style="bold"))
        for finding in sorted(noticed, key=lambda f: f.severity != "warning"):
            yield from _finding(finding)
    if plan.problems:
        yield from (Text(), Text("Why there is no plan", style="bold"))
        for problem in plan.problems:
            yield from _problem(problem)
    pending = not_installed({name: plan.lock}) if plan.lock else ""
    yield from (Text(), Hanging(pending, "", "  ")) if pending else ()
    yield Text()


def _told(finding: Finding, problems: tuple[Problem, ...]) -> bool:
    """A note of which a refusal tells all, such as which GPUs are there, is not told beside it."""
    seen = finding.evidence.splitlines()
    return finding.severity == "note" and bool(seen) and any(all(line in p.evidence for line in seen) for p in problems)


def _choice(choice: Choice, sentences: tuple[str, ...]) -> Iterator[RenderableType]:
    yield Text()
    yield Hanging(one_line(choice.value) or "open", Text.assemble((one_line(choice.item), "bold"), ": "), "    ")
    yield from _sentences(sentences)
    untold = "; ".join(part for part in choice.reason.split("; ") if not any(part in told for told in sentences))
    if untold:
        yield from _sentences((untold[:1].upper() + untold[1:],))
    stand_in = ", and on a stand-in of the lab" if choice.simulated else ""
    yield Hanging(Text(f"Rests on {one_line(choice.source)}{_sure(choice)}{stand_in}.", style="dim"), "  ")


def _sure(choice: Choice) -> str:
    """What a row of the catalog is worth; a fact and a wish are what they are."""
    if choice.confidence == "recalled":
        return " (recalled: not everything of it was read at its source yet)"
    return " (verified)" if choice.source.startswith("catalog") else ""


def _sentences(sentences: tuple[str, ...]) -> Iterator[RenderableType]:
    for sentence in sentences:
        text = one_line(sentence)
        yield Hanging(text if text.endswith((".", "!", "?", ":")) else f"{text}.", "  ")


def _finding(finding: Finding) -> Iterator[RenderableType]:
    yield Hanging(headline(finding), _sign(mark(TONES[finding.severity], finding.severity)), "    ")
    yield from _evidence(finding.evidence)
    if finding.advice:
        yield Hanging(next_step(one_line(finding.advice)), "    ")


def _problem(problem: Problem) -> Iterator[RenderableType]:
    said = f"{one_line(problem.message)} ({one_line(problem.code)})"
    yield Hanging(said, _sign(mark("bad", "refused")), "    ")
    yield from _evidence(problem.evidence)
    if problem.remedy:
        yield Hanging(next_step(one_line(problem.remedy)), Text.assemble("    ", ("Next:", "bold"), " "))


def _evidence(evidence: str) -> Iterator[RenderableType]:
    for line in visible(evidence.strip()).splitlines()[:EVIDENCE_LINES]:
        bar = Text("    │ ", style="dim")
        yield Hanging(Text(line, style="dim"), bar, bar)


def _sign(mark: Text) -> Text:
    return Text.assemble("  ", mark, "  ")
