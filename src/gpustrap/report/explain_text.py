"""How the plan of a node came about, in sentences: every choice with what it rests on, and everything noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gpustrap.errors import Problem
from gpustrap.model.lock import Choice
from gpustrap.model.plan import Finding, NodePlan
from gpustrap.report.escape import one_line, visible
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
    if plan.findings:
        yield from (Text(), Text("What was noticed", style="bold"))
        for finding in sorted(plan.findings, key=lambda f: f.severity != "warning"):
            yield from _finding(finding)
    if plan.problems:
        yield from (Text(), Text("Why there is no plan", style="bold"))
        for problem in plan.problems:
            yield from _problem(problem)
    pending = not_installed({name: plan.lock}) if plan.lock else ""
    yield from (Text(), Text(pending)) if pending else ()
    yield Text()


def _choice(choice: Choice, sentences: tuple[str, ...]) -> Iterator[RenderableType]:
    yield Text()
    yield Text.assemble((one_line(choice.item), "bold"), f": {one_line(choice.value) or 'open'}")
    yield from _sentences(sentences)
    if choice.reason and not any(choice.reason in sentence for sentence in sentences):
        yield from _sentences((choice.reason[:1].upper() + choice.reason[1:],))
    stand_in = ", and on a stand-in of the lab" if choice.simulated else ""
    yield _indented(Text(f"Rests on {one_line(choice.source)}{_sure(choice)}{stand_in}.", style="dim"))


def _sure(choice: Choice) -> str:
    """What a row of the catalog is worth; a fact and a wish are what they are."""
    if choice.confidence == "recalled":
        return " (recalled: not everything of it was read at its source yet)"
    return " (verified)" if choice.source.startswith("catalog") else ""


def _sentences(sentences: tuple[str, ...]) -> Iterator[RenderableType]:
    for sentence in sentences:
        text = one_line(sentence)
        yield _indented(Text(text if text.endswith((".", "!", "?", ":")) else f"{text}."))


def _finding(finding: Finding) -> Iterator[RenderableType]:
    yield _indented(Text.assemble(mark(TONES[finding.severity], finding.severity), f"  {headline(finding)}"))
    yield from _evidence(finding.evidence)
    if finding.advice:
        yield _indented(Text(next_step(one_line(finding.advice))), 4)


def _problem(problem: Problem) -> Iterator[RenderableType]:
    said = f"  {one_line(problem.message)} ({one_line(problem.code)})"
    yield _indented(Text.assemble(mark("bad", "refused"), said))
    yield from _evidence(problem.evidence)
    if problem.remedy:
        yield _indented(Text.assemble(("Next:", "bold"), f" {next_step(one_line(problem.remedy))}"), 4)


def _evidence(evidence: str) -> Iterator[RenderableType]:
    for line in visible(evidence.strip()).splitlines()[:EVIDENCE_LINES]:
        yield _indented(Text(f"│ {line}", style="dim"), 4)


def _indented(text: Text, by: int = 2) -> Padding:
    """Also where the terminal breaks the line."""
    return Padding(text, (0, 0, 0, by), expand=False)
