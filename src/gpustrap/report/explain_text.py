"""How the plan of a node came about, in sentences: every choice with what it rests on, and everything noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
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


def _node(name: str, plan: NodePlan) -> Iterator[Text]:
    yield Text.assemble((one_line(name), "bold"), "" if plan.lock else ": refused")
    told = {reasoning.item: reasoning.sentences for reasoning in plan.reasoning}
    choices = plan.lock.choices if plan.lock else ()
    for choice in choices:
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


def _choice(choice: Choice, sentences: tuple[str, ...]) -> Iterator[Text]:
    yield Text()
    yield Text.assemble((one_line(choice.item), "bold"), f": {one_line(choice.value) or 'open'}")
    yield from _sentences(sentences)
    reason = choice.reason[:1].upper() + choice.reason[1:]
    yield from _sentences((reason,) if reason else ())
    stand_in = ", and on a stand-in of the lab" if choice.simulated else ""
    sure = ", recalled: nobody has read that at its source yet" if choice.confidence == "recalled" else ""
    yield Text(f"  Rests on {one_line(choice.source)}{stand_in}{sure}.", style="dim")


def _sentences(sentences: tuple[str, ...]) -> Iterator[Text]:
    for sentence in sentences:
        text = one_line(sentence)
        yield Text(f"  {text}" if text.endswith((".", "!", "?", ":")) else f"  {text}.")


def _finding(finding: Finding) -> Iterator[Text]:
    yield Text.assemble("  ", mark(TONES[finding.severity], finding.severity), f"  {headline(finding)}")
    yield from _evidence(finding.evidence)
    if finding.advice:
        yield Text(f"    {next_step(one_line(finding.advice))}")


def _problem(problem: Problem) -> Iterator[Text]:
    yield Text.assemble("  ", mark("bad", "refused"), f"  {one_line(problem.message)} ({one_line(problem.code)})")
    yield from _evidence(problem.evidence)
    if problem.remedy:
        yield Text.assemble("    ", ("Next:", "bold"), f" {next_step(one_line(problem.remedy))}")


def _evidence(evidence: str) -> Iterator[Text]:
    for line in visible(evidence.strip()).splitlines()[:EVIDENCE_LINES]:
        yield Text(f"    │ {line}", style="dim")
