"""plan: decides what each node gets, and writes it down in the lock. Changes nothing on a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpustrap import __version__
from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.commands.inspect import read_facts
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import Progress, silent
from gpustrap.model.site import Site
from gpustrap.resolve.plan import COMPONENTS, plan_node
from gpustrap.site.inventory import load_nodes
from gpustrap.site.lockfile import diff_locks, read_lock, write_lock


@dataclass(frozen=True, slots=True)
class Planned:
    """What was decided.

    Attributes:
        nodes: The plan of every node that has one, with today's reasons.
        changes: What the new lock has that the old one had not; a line for a person each.
        problems: Refusals, and nodes that could not be asked. Their old entries stay.
        lock: The new lock; not written with ``check``.
        written: The lock was written: it is not what it was.
    """

    nodes: Mapping[str, NodeLock]
    changes: tuple[str, ...]
    problems: tuple[Problem, ...]
    lock: Lock
    written: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """OK if every node has a plan."""
        return worst(p.exit_code for p in self.problems)


def plan(
    site: Site,
    *,
    patterns: Sequence[str] | None = None,
    limit: str | None = None,
    upgrade: bool = False,
    check: bool = False,
    secrets: Secrets,
    forks: int = 20,
    progress: Progress = silent,
) -> Planned:
    """Plan nodes and write the lock.

    Args:
        site: The site.
        patterns: Nodes or groups; all when empty.
        limit: An Ansible host pattern that narrows them down.
        upgrade: Take the newest versions instead of the locked ones.
        check: Write nothing; a lock that would change is a problem.
        secrets: Passwords of this run.
        forks: Nodes asked at a time.
        progress: Told how it goes.

    Raises:
        GpustrapError: Broken inventory or lock; a node's own troubles are in the result.
    """
    catalog = load_catalog()
    nodes = load_nodes(site, patterns, limit)
    old = read_lock(site)
    answers = read_facts(
        site,
        nodes,
        secrets=secrets,
        packages=lambda node: sorted({*catalog.packages(), *node.request.packages}),
        forks=forks,
        progress=progress,
        asking="asking (reading today's package lists can take half a minute)",
    )
    before = old.nodes if old else {}
    planned, problems = _decide(nodes, answers, before, catalog, upgrade=upgrade)
    whole_site = not patterns and not limit
    here = {node.name for node in nodes}
    stay = {name: entry for name, entry in before.items() if name in here or not whole_site}
    entries = stay | {name: _settled(before.get(name), entry) for name, entry in planned.items()}
    lock = Lock(tool=f"gpustrap {__version__}", catalog=catalog.digest, nodes=entries)
    changes = diff_locks(old, lock)
    written = not check and lock != old and bool(entries or old)
    if check and entries != before:
        problems.append(_stale(site))
    elif written:
        write_lock(site, lock)
    return Planned(planned, changes, tuple(problems), lock, written)


def _decide(
    nodes: Sequence[Node],
    answers: Mapping[str, Facts | GpustrapError],
    before: Mapping[str, NodeLock],
    catalog: Catalog,
    *,
    upgrade: bool,
) -> tuple[dict[str, NodeLock], list[Problem]]:
    planned: dict[str, NodeLock] = {}
    problems: list[Problem] = []
    for node in nodes:
        facts = answers[node.name]
        if isinstance(facts, GpustrapError):
            problems += facts.problems
            continue
        keep = before.get(node.name)
        decided = plan_node(node.name, facts, node.request, catalog, keep=keep, upgrade=COMPONENTS if upgrade else ())
        problems += decided.problems
        if decided.lock:
            planned[node.name] = decided.lock
    return planned, problems


def _settled(old: NodeLock | None, new: NodeLock) -> NodeLock:
    """The old entry where nothing but the wording of a reason changed: news in the archive must not change the lock."""
    return old if old and old.model_copy(update={"choices": new.choices}) == new else new


def _stale(site: Site) -> Problem:
    return Problem(
        code="lock-stale",
        subject=f"lock {site.lock}",
        message="it is not what the plan is now; nothing was written",
        exit_code=ExitCode.REFUSED,
        remedy="gpustrap plan",
    )
