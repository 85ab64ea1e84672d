"""The ledgers on the nodes: opened before a run's first change, closed with what the run left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from gpustrap import __version__
from gpustrap.commands.probe import ask_nodes
from gpustrap.converge.claims import make_ledger
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.ledger import Claim, Ledger
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import Progress, Step, silent
from gpustrap.model.site import Site

Answers = dict[str, dict[str, Any] | GpustrapError]


def ask_verb(
    site: Site,
    nodes: Sequence[Node],
    verb: str,
    arguments: Callable[[Node], dict[str, Any]] = lambda _node: {},
    *,
    secrets: Secrets,
    forks: int = 20,
    progress: Progress = silent,
    asking: str = "asking",
) -> Answers:
    """Ask the node program for one verb; what a node refuses becomes its error.

    Returns:
        For each node its data, or why there is none.
    """
    answers = ask_nodes(
        site,
        nodes,
        secrets=secrets,
        request=lambda node: {"verb": verb, "args": arguments(node), "root": "/"},
        forks=forks,
        progress=lambda step: progress(Step(step.node, step.text)) if step.ok else None,
        asking=asking,
    )
    return {name: _data(name, verb, answer) for name, answer in answers.items()}


def _data(name: str, verb: str, answer: dict[str, Any] | GpustrapError) -> dict[str, Any] | GpustrapError:
    if isinstance(answer, GpustrapError):
        return answer
    data = answer.get("data")
    if answer.get("ok") is True and isinstance(data, dict):
        return data
    error = answer.get("error")
    said = error if isinstance(error, dict) else {}
    return GpustrapError(
        Problem(
            code=str(said.get("code", "probe-failed"))[:80],
            subject=f"node {name}",
            message=f"the node could not answer ({verb})",
            exit_code=ExitCode.COULD_NOT_CHECK,
            evidence=str(said.get("message", "no answer that can be read"))[:1000],
            remedy=f"gpustrap inspect {name}",
        )
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """What came of marking a run as begun.

    Attributes:
        failed: The nodes where that failed; they must not be changed.
        before: Per other node, the earlier run that was begun there and never ended, if there is one.
    """

    failed: Mapping[str, GpustrapError]
    before: Mapping[str, Any]


def open_ledgers(
    site: Site, nodes: Sequence[Node], run_id: str, *, secrets: Secrets, forks: int, progress: Progress
) -> Opened:
    """Mark the run as begun on each node."""
    answers = ask_verb(
        site, nodes, "ledger-open", lambda _node: {"run_id": run_id}, secrets=secrets, forks=forks, progress=progress
    )
    return Opened(
        failed=_errors(answers),
        before={n: answer.get("left_open") for n, answer in answers.items() if not isinstance(answer, GpustrapError)},
    )


def release_ledgers(
    site: Site,
    nodes: Sequence[Node],
    run_id: str,
    before: Mapping[str, Any],
    *,
    secrets: Secrets,
    forks: int,
    progress: Progress,
) -> dict[str, GpustrapError]:
    """Take the mark of the run back from nodes whose turn never came. Gives the nodes where that failed."""
    answers = ask_verb(
        site,
        nodes,
        "ledger-release",
        lambda node: {"run_id": run_id, "left_open": before.get(node.name)},
        secrets=secrets,
        forks=forks,
        progress=progress,
    )
    return _errors(answers)


def _errors(answers: Answers) -> dict[str, GpustrapError]:
    return {name: answer for name, answer in answers.items() if isinstance(answer, GpustrapError)}


def close_ledgers(
    site: Site,
    nodes: Sequence[Node],
    run_id: str,
    *,
    complete: Mapping[str, bool],
    lock_digests: Mapping[str, str],
    claims: Mapping[str, tuple[Claim, ...]],
    secrets: Secrets,
    forks: int,
    progress: Progress,
) -> dict[str, GpustrapError]:
    """Observe what was claimed, store the ledger on each node, and clear the mark of the run.

    Args:
        site: The site.
        nodes: Nodes on which Ansible came to its end, well or not.
        run_id: The run.
        complete: Per node, whether the whole site was run there and nothing failed.
        lock_digests: Per node, the digest of its entry of the lock.
        claims: Per node, what the roles claimed.
        secrets: Passwords of this run.
        forks: Nodes worked on at a time.
        progress: Told how it goes.

    Returns:
        The nodes whose ledger could not be stored, or is not whole.
    """
    ask = partial(ask_verb, site, secrets=secrets, forks=forks, progress=progress)
    old = ask(nodes, "ledger-read")
    states = ask(
        nodes,
        "observe",
        lambda node: {"resources": [{"kind": str(c.kind), "name": c.name} for c in claims.get(node.name, ())]},
    )
    failed: dict[str, GpustrapError] = {}
    ledgers: dict[str, Ledger] = {}
    for node in nodes:
        try:
            ledgers[node.name], unread = make_ledger(
                run_id=run_id,
                complete=complete[node.name],
                tool=__version__,
                lock_digest=lock_digests[node.name],
                claims=claims.get(node.name, ()),
                states=_states(states[node.name]),
                old=_old_ledger(node.name, old[node.name], complete=complete[node.name]),
            )
        except GpustrapError as error:
            failed[node.name] = error
            continue
        if unread:
            failed[node.name] = GpustrapError(_unread(node.name, unread))
    stored = ask(
        [n for n in nodes if n.name in ledgers],
        "ledger-close",
        lambda node: {"ledger": ledgers[node.name].model_dump(mode="json")},
    )
    return failed | _errors(stored)


def _states(answer: dict[str, Any] | GpustrapError) -> list[Mapping[str, Any]]:
    if isinstance(answer, GpustrapError):
        raise answer
    found = answer.get("states")
    return [s for s in found if isinstance(s, Mapping)] if isinstance(found, list) else []


def _old_ledger(name: str, answer: dict[str, Any] | GpustrapError, *, complete: bool) -> Ledger | None:
    """The ledger before; one that cannot be read must not be replaced by a partial run's, only by a whole one."""
    if isinstance(answer, GpustrapError):
        raise answer
    if answer.get("ledger") is None and not answer.get("unknown"):
        return None
    try:
        return Ledger.model_validate(answer["ledger"])
    except ValidationError as error:
        if complete:
            return None
        raise GpustrapError(
            Problem(
                code="ledger-corrupt",
                subject=f"node {name}",
                message="its ledger cannot be read, so this partial run was not added to it",
                exit_code=ExitCode.COULD_NOT_CHECK,
                evidence=str(answer.get("unknown") or error)[:1000],
                remedy=f"gpustrap apply {name} (a whole run writes it anew)",
            )
        ) from error


def _unread(name: str, resources: Sequence[str]) -> Problem:
    return Problem(
        code="state-unread",
        subject=f"node {name}",
        message=f"the state of {len(resources)} resources could not be read, so the run does not count as complete",
        exit_code=ExitCode.COULD_NOT_CHECK,
        evidence="\n".join(resources),
        remedy=f"gpustrap apply {name}",
    )
