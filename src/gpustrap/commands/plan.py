"""plan: decides what each node gets, and writes it down in the lock. Changes nothing on a node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gpustrap import __version__
from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.commands.closures import Closures
from gpustrap.commands.controller import controller_problem
from gpustrap.commands.inspect import ASKING, packages_of_plan, read_facts
from gpustrap.environments.lock import Compiler, compile_closure
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Node, Secrets
from gpustrap.model.plan import Finding, NodePlan
from gpustrap.model.progress import Progress, silent
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.resolve.plan import COMPONENTS, plan_node
from gpustrap.site.inventory import load_nodes
from gpustrap.site.lockfile import diff_locks, read_lock, write_lock
from gpustrap.site.meant import closest


@dataclass(frozen=True, slots=True)
class Planned:
    """What was decided.

    Attributes:
        plans: By node, with today's reasons; refused ones, too, but none of a node that could not be asked.
        changes: What the new lock has that the old one had not; a line for a person each.
        problems: Refusals, and nodes that could not be asked. Their old entries stay.
        lock: The new lock; not written with ``check``. None where the plan is about no site.
        written: The lock was written: it is not what it was.
        note: What a person should know besides: where the plan came from, or files that nothing uses any more.
    """

    plans: Mapping[str, NodePlan]
    changes: tuple[str, ...]
    problems: tuple[Problem, ...]
    lock: Lock | None = None
    written: bool = False
    note: str = ""

    @property
    def nodes(self) -> dict[str, NodeLock]:
        """The entry of every node that has a plan."""
        return {name: plan.lock for name, plan in self.plans.items() if plan.lock}

    @property
    def exit_code(self) -> ExitCode:
        """OK if every node has a plan."""
        return worst(p.exit_code for p in self.problems)


def plan(
    site: Site,
    *,
    patterns: Sequence[str] | None = None,
    limit: str | None = None,
    upgrade: Collection[str] = (),
    check: bool = False,
    write: bool = True,
    secrets: Secrets,
    forks: int = 20,
    progress: Progress = silent,
    compiler: Compiler = compile_closure,
) -> Planned:
    """Plan nodes and write the lock, and the lock files of environments.

    Args:
        site: The site.
        patterns: Nodes or groups; all when empty.
        limit: An Ansible host pattern that narrows them down.
        upgrade: The components that take the newest versions instead of the locked ones.
        check: Write nothing; a lock that would change is a problem.
        write: Write the lock if it changes.
        secrets: Passwords of this run.
        forks: Nodes asked at a time.
        progress: Told how it goes.
        compiler: What finds the packages of environments that have no lock file yet.

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
        packages=packages_of_plan(catalog),
        forks=forks,
        progress=progress,
        asking=ASKING,
    )
    before = old.nodes if old else {}
    closures = Closures(site, before, catalog, compiler, "environments" in upgrade, progress)
    locking = closures if write or check else None
    plans, problems = _decide(nodes, answers, before, catalog, upgrade, locking)
    planned = {name: plan.lock for name, plan in plans.items() if plan.lock}
    whole_site = not patterns and not limit
    here = {node.name for node in nodes}
    stay = {name: entry for name, entry in before.items() if name in here or not whole_site}
    entries = closures.shared(stay) | {name: _settled(before.get(name), entry) for name, entry in planned.items()}
    lock = Lock(tool=f"gpustrap {__version__}", catalog=catalog.digest, nodes=entries)
    changes = (*diff_locks(old, lock), *closures.changes())
    written = write and not check and lock != old and bool(entries or old)
    if write and not check:
        closures.write()
    if check and entries != before:
        problems.append(_stale(site))
    elif written:
        write_lock(site, lock)
    return Planned(plans, changes, tuple(problems), lock, written, note=_unused(closures.unused(entries)))


def decide(
    name: str,
    facts: Facts,
    request: Request,
    catalog: Catalog,
    *,
    keep: NodeLock | None = None,
    upgrade: Collection[str] = (),
    offline: bool = False,
) -> NodePlan:
    """The plan of one node, and whether this machine could carry it out; see `plan_node`."""
    decided = plan_node(name, facts, request, catalog, keep=keep, upgrade=upgrade, offline=offline)
    trouble = controller_problem(name, facts)
    if not trouble:
        return decided
    message = f"{trouble.message}, so apply will refuse this node"
    finding = Finding(
        code=trouble.code,
        severity="warning",
        subject="",
        message=message,
        evidence=trouble.evidence,
        advice=trouble.remedy,
    )
    return replace(decided, findings=(*decided.findings, finding))


def components(upgrade: bool, only: Sequence[str]) -> tuple[str, ...]:
    """The components that move to their newest versions.

    Args:
        upgrade: Whether any does.
        only: Which; all when empty.

    Raises:
        GpustrapError: There is no such component, or nothing is to move.
    """
    if only and not upgrade:
        message = "it says which components --upgrade moves, and --upgrade is not there"
        remedy = f"gpustrap plan --upgrade --only {only[0]}"
        raise GpustrapError(Problem("only-without-upgrade", f"--only {only[0]}", message, ExitCode.USAGE, "", remedy))
    wrong = [name for name in dict.fromkeys(only) if name not in COMPONENTS]
    if wrong:
        raise GpustrapError(*(_no_such_component(name) for name in wrong))
    return tuple(dict.fromkeys(only)) or (COMPONENTS if upgrade else ())


def _no_such_component(name: str) -> Problem:
    near = closest(name, COMPONENTS)
    return Problem(
        code="no-such-component",
        subject=f"--only {name}",
        message="there is no such component" + (f"; did you mean {near}?" if near else ""),
        exit_code=ExitCode.USAGE,
        remedy=f"use {near}" if near else f"use one of {', '.join(COMPONENTS)}",
    )


def _decide(
    nodes: Sequence[Node],
    answers: Mapping[str, Facts | GpustrapError],
    before: Mapping[str, NodeLock],
    catalog: Catalog,
    upgrade: Collection[str],
    closures: Closures | None,
) -> tuple[dict[str, NodePlan], list[Problem]]:
    plans: dict[str, NodePlan] = {}
    problems: list[Problem] = []
    for node in nodes:
        facts = answers[node.name]
        if isinstance(facts, GpustrapError):
            problems += facts.problems
            continue
        keep = before.get(node.name)
        decided = decide(node.name, facts, node.request, catalog, keep=keep, upgrade=upgrade)
        decided = closures.lock(node, facts, decided) if closures else decided
        plans[node.name] = replace(decided, findings=(*node.findings, *decided.findings))
        problems += decided.problems
    return plans, problems


def _settled(old: NodeLock | None, new: NodeLock) -> NodeLock:
    """The old entry where nothing but the wording of a reason changed: news in the archive must not change the lock."""
    return old if old and old.model_copy(update={"choices": new.choices}) == new else new


def _unused(files: Sequence[str]) -> str:
    return f"No node uses these any more: git rm {' '.join(files)}" if files else ""


def _stale(site: Site) -> Problem:
    return Problem(
        code="lock-stale",
        subject=f"lock {site.lock}",
        message="it is not what the plan is now; nothing was written",
        exit_code=ExitCode.REFUSED,
        remedy="gpustrap plan",
    )
