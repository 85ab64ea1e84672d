"""inspect: what nodes are. One round trip each; changes nothing there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.commands.ledgers import ask_verb
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.facts import Facts
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import SEE_BELOW, Progress, Step, silent
from gpustrap.model.site import Site
from gpustrap.site.facts_cache import save_facts

Packages = Callable[[Node], Sequence[str]]
ASKING = "asking (reading today's package lists can take half a minute)"


@dataclass(frozen=True, slots=True)
class Inspection:
    """What nodes are, and what could not be found out."""

    facts: dict[str, Facts]
    problems: tuple[Problem, ...]

    @property
    def exit_code(self) -> ExitCode:
        """OK if every node answered."""
        return worst(p.exit_code for p in self.problems)


def inspect_nodes(
    site: Site, nodes: Sequence[Node], *, secrets: Secrets, forks: int = 20, progress: Progress = silent
) -> Inspection:
    """Read and keep the facts of nodes, with all that a plan asks; one that fails never hides the others."""
    answers = read_facts(
        site,
        nodes,
        secrets=secrets,
        packages=packages_of_plan(load_catalog()),
        forks=forks,
        progress=progress,
        asking=ASKING,
    )
    return Inspection(
        facts={name: answer for name, answer in answers.items() if isinstance(answer, Facts)},
        problems=tuple(p for answer in answers.values() if isinstance(answer, GpustrapError) for p in answer.problems),
    )


def packages_of_plan(catalog: Catalog) -> Packages:
    """What a plan asks a node about: every package of the catalog, and those of its request."""
    known = catalog.packages()
    return lambda node: sorted({*known, *node.request.packages})


def read_facts(
    site: Site,
    nodes: Sequence[Node],
    *,
    secrets: Secrets,
    packages: Packages = lambda _node: (),
    forks: int = 20,
    progress: Progress = silent,
    asking: str = "asking",
) -> dict[str, Facts | GpustrapError]:
    """The facts of nodes, checked against the schema and saved in the site.

    Args:
        site: The site.
        nodes: Which nodes.
        secrets: Passwords of this run.
        packages: Per node, the packages whose installed and candidate versions are wanted.
        forks: Nodes asked at a time.
        progress: Told how it goes.
        asking: What it is told while a node works on its answer.

    Returns:
        For each node its facts, or why there are none.
    """
    sent: dict[str, float] = {}
    received: dict[str, float] = {}

    def listen(step: Step) -> None:
        received[step.node] = time.time()  # a node's last step is that its answer is here
        progress(step)

    def arguments(node: Node) -> dict[str, Any]:
        sent[node.name] = time.time()  # called just before the question goes out
        return {"packages": list(packages(node)), "environments": node.request.environments_prefix}

    answers = ask_verb(site, nodes, "facts", arguments, secrets=secrets, forks=forks, progress=listen, asking=asking)
    found: dict[str, Facts | GpustrapError] = {}
    for name, answer in answers.items():
        while_asked = (sent.get(name, 0.0), received.get(name, time.time()))
        found[name] = result = answer if isinstance(answer, GpustrapError) else check(name, answer, while_asked)
        if isinstance(result, Facts):
            save_facts(site, name, result)
            progress(Step(name, result.os.pretty_name or result.os.id, done=True))
        else:
            progress(Step(name, SEE_BELOW, done=True, ok=False))
    return found


def check(name: str, answer: dict[str, Any], while_asked: tuple[float, float]) -> Facts | GpustrapError:
    """Validate what a node says it is, and compare its clock with ours.

    Args:
        name: Inventory name.
        answer: What the node sent: hostile input.
        while_asked: Our clock when the question went out and when the answer was here, seconds since 1970; the node
            read its own in between.
    """
    facts = validate(name, answer)
    if isinstance(facts, GpustrapError):
        return facts
    earliest, latest = while_asked
    skew = facts.time.epoch - min(max(facts.time.epoch, earliest), latest)  # 0 if it may be right
    clock = facts.time.model_copy(update={"skew": round(skew, 1)})
    return facts.model_copy(update={"time": clock})


def validate(name: str, answer: object) -> Facts | GpustrapError:
    """The facts in what a node sent, or why there are none: hostile input."""
    try:
        return Facts.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[:5]
        return GpustrapError(
            Problem(
                code="probe-answer-invalid",
                subject=f"node {name}",
                message="its answer does not have the shape of facts, so none of it is used",
                exit_code=ExitCode.COULD_NOT_CHECK,
                evidence="\n".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in first),
                remedy=f"look at what answers on the node; nothing else of it can be trusted: ssh {name}",
            )
        )
