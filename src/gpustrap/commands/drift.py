"""drift: what of the nodes is no longer as the last apply left it, or as the lock now wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field, ValidationError

from gpustrap.commands.ledgers import ask_verb
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.base import FromNode
from gpustrap.model.drift import LOCK, NodeDrift
from gpustrap.model.ledger import DriftItem, RunMark
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import Progress, Step, silent
from gpustrap.model.site import Site
from gpustrap.resolve.digests import entry_digest
from gpustrap.site.inventory import load_nodes
from gpustrap.site.lockfile import read_lock


class _Answer(FromNode):
    """What the node program says to ``drift``."""

    ledger_run: RunMark | None = None
    lock_digest: str = ""
    open_run: str | None = None
    unknown: str = ""
    items: tuple[DriftItem, ...] = Field(default=(), max_length=100_000)
    checked: int = 0


def drift(
    site: Site,
    *,
    patterns: Sequence[str] | None = None,
    limit: str | None = None,
    secrets: Secrets,
    forks: int = 20,
    progress: Progress = silent,
) -> tuple[NodeDrift, ...]:
    """Compare nodes with their ledgers and the lock; one round trip, changes nothing.

    Args:
        site: The site.
        patterns: Nodes or groups; all when empty.
        limit: An Ansible host pattern that narrows them down.
        secrets: Passwords of this run.
        forks: Nodes asked at a time.
        progress: Told how it goes.

    Raises:
        GpustrapError: The inventory or the lock is broken.
    """
    nodes = load_nodes(site, patterns, limit)
    lock = read_lock(site)
    answers = ask_verb(site, nodes, "drift", secrets=secrets, forks=forks, progress=progress)
    found = []
    for node in nodes:
        result = compare(node, answers[node.name], lock)
        found.append(result)
        progress(Step(node.name, "in sync" if result.in_sync else "not in sync", done=True, ok=result.in_sync))
    return tuple(found)


def compare(node: Node, answer: dict[str, object] | GpustrapError, lock: Lock | None) -> NodeDrift:
    """Judge one node's answer; it is hostile until it has the right shape."""
    entry = lock.nodes.get(node.name) if lock else None
    return replace(_judge(node.name, answer, entry), simulated=entry is not None and entry.simulated)


def _judge(name: str, answer: dict[str, object] | GpustrapError, entry: NodeLock | None) -> NodeDrift:
    if isinstance(answer, GpustrapError):
        return NodeDrift(name, problems=answer.problems)
    try:
        said = _Answer.model_validate(answer)
    except ValidationError as error:
        return NodeDrift(name, problems=(_unexpected(name, str(error)),))
    if said.unknown:
        return NodeDrift(name, problems=(_unexpected(name, said.unknown),))
    if said.ledger_run is None and said.open_run is None:
        return NodeDrift(name, problems=(_never_applied(name),))
    problems = _unfinished(name, said)
    items = said.items
    if entry is None:
        problems = (*problems, _not_planned(name))
    elif said.ledger_run is not None and entry_digest(entry) != said.lock_digest:
        items = (*items, _lock_moved(entry_digest(entry), said.lock_digest))
    run = said.ledger_run.id if said.ledger_run else ""
    return NodeDrift(name, run=run, checked=said.checked, items=items, problems=problems)


def _unfinished(name: str, said: _Answer) -> tuple[Problem, ...]:
    if said.open_run is not None:
        message = f"the last run ({said.open_run}) was begun and never ended"
    elif said.ledger_run is not None and not said.ledger_run.complete:
        message = f"the last run ({said.ledger_run.id}) is incomplete: a failure, or only some roles"
    else:
        return ()
    return (
        Problem(
            code="run-incomplete",
            subject=f"node {name}",
            message=message,
            exit_code=ExitCode.COULD_NOT_CHECK,
            remedy=f"gpustrap apply {name}",
        ),
    )


def _lock_moved(wanted: str, found: str) -> DriftItem:
    return DriftItem(kind=LOCK, name="gpustrap.lock.yml", role="", wanted={"digest": wanted}, found={"digest": found})


def _never_applied(name: str) -> Problem:
    return Problem(
        code="no-ledger",
        subject=f"node {name}",
        message="was never applied, so there is nothing to compare it with",
        exit_code=ExitCode.COULD_NOT_CHECK,
        remedy=f"gpustrap apply {name}",
    )


def _not_planned(name: str) -> Problem:
    return Problem(
        code="not-planned",
        subject=f"node {name}",
        message="is not in the lock, so nothing says what it should be",
        exit_code=ExitCode.COULD_NOT_CHECK,
        remedy=f"gpustrap plan {name}",
    )


def _unexpected(name: str, why: str) -> Problem:
    return Problem(
        code="ledger-unreadable",
        subject=f"node {name}",
        message="its ledger cannot be used, so nothing is known about drift",
        exit_code=ExitCode.COULD_NOT_CHECK,
        evidence=why[:1000],
        remedy=f"gpustrap apply {name} (writes it anew)",
    )
