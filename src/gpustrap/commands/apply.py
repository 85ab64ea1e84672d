"""apply: brings nodes to their lock, and tells the truth about how each of them ended."""

from __future__ import annotations

import secrets as random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpustrap.commands import apply_problems as problem
from gpustrap.commands.apply_session import one_time_password, settings_of
from gpustrap.commands.inspect import ASKING, read_facts
from gpustrap.commands.ledgers import close_ledgers, open_ledgers, release_ledgers
from gpustrap.commands.plan import plan
from gpustrap.commands.readiness import readiness
from gpustrap.commands.verify import VERDICT_CODES, verify_nodes
from gpustrap.converge.masking import Mask
from gpustrap.converge.runlog import RunLog, write_summary
from gpustrap.converge.session import SessionResult, Settings, run_ansible
from gpustrap.converge.tally import Tally
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.check import NodeChecks
from gpustrap.model.ledger import Claim
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import SEE_BELOW, Progress, Step, silent
from gpustrap.model.run import NodeRun, Outcome, RunSummary
from gpustrap.model.site import Site
from gpustrap.report import run_report
from gpustrap.resolve.digests import entry_digest
from gpustrap.resolve.locked_versions import locked_packages
from gpustrap.site.inventory import load_nodes
from gpustrap.site.lockfile import read_lock
from gpustrap.site.node_lock import hold_nodes

WELL = {Outcome.CHANGED, Outcome.UNCHANGED, Outcome.WOULD_CHANGE}
CLAIMS_PLUGIN = "gpustrap_claims"


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """What the user asked for.

    Attributes:
        tags: Only these roles.
        check: Change nothing, say what would change.
        diff: Show the differences in files.
        forks: Nodes worked on at a time.
        serial: Nodes (or a percentage of them) that go through all roles before the next begin.
        verify: Check the nodes afterwards.
        replan: Plan first.
        reboot: Nodes may be rebooted where their driver needs it.
    """

    tags: tuple[str, ...] = ()
    check: bool = False
    diff: bool = False
    forks: int = 20
    serial: str | None = None
    verify: bool = True
    replan: bool = False
    reboot: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """How an apply ended.

    Attributes:
        summary: Node by node.
        problems: What went wrong beyond what the summary says of each node.
        directory: The run's directory.
        exit_code: The worst of all.
        password: One-time, for the person who enrols the keys of these nodes; to be shown once, and kept nowhere.
    """

    summary: RunSummary
    problems: tuple[Problem, ...]
    directory: Path
    exit_code: ExitCode
    password: str = field(default="", repr=False)


@dataclass(slots=True)
class _Run:
    """One apply on its way; problems are kept per node until the end."""

    site: Site
    options: ApplyOptions
    secrets: Secrets
    progress: Progress
    id: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{random.token_hex(3)}")
    start: float = field(default_factory=time.monotonic)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    problems: list[Problem] = field(default_factory=list)
    refused: dict[str, tuple[Problem, ...]] = field(default_factory=dict)
    password: str = field(default="", repr=False)  # see Applied
    open_before: Mapping[str, Any] = field(default_factory=dict)  # runs that never ended, as ledger-open found them

    @property
    def directory(self) -> Path:
        """Where this run is written down."""
        return self.site.runs / self.id

    def refuse(self, name: str, problems: tuple[Problem, ...]) -> None:
        """A node goes no further, before anything was changed on it."""
        self.refused[name] = problems
        self.progress(Step(name, SEE_BELOW, done=True, ok=False))


def apply(
    site: Site,
    *,
    patterns: Sequence[str] | None = None,
    limit: str | None = None,
    options: ApplyOptions,
    secrets: Secrets,
    progress: Progress = silent,
) -> Applied:
    """Bring nodes to their lock.

    Args:
        site: The site.
        patterns: Nodes or groups; all when empty.
        limit: An Ansible host pattern that narrows them down.
        options: What to do.
        secrets: Passwords of this run.
        progress: Told how it goes.

    Returns:
        How each node ended; one node's failure stops no other.

    Raises:
        GpustrapError: Nothing could be begun: no such role, no such --serial, broken inventory, no lock.
    """
    problem.refuse_unknown_tags(options.tags)
    problem.refuse_bad_serial(options.serial)
    nodes = load_nodes(site, patterns, limit)
    run = _Run(site, options, secrets, progress)
    # Held in check mode, too: Ansible takes apt's locks then, in the way of another run.
    with hold_nodes(site, [n.name for n in nodes], run.id) as busy:
        for name, holder in busy.items():
            run.refuse(name, (problem.node_busy(name, holder),))
        if options.replan and busy:  # the lock of a node at work stays as it is
            patterns, limit = [n.name for n in nodes if n.name not in busy], None
        return _apply(run, nodes, patterns, limit)


def _apply(run: _Run, nodes: Sequence[Node], patterns: Sequence[str] | None, limit: str | None) -> Applied:
    free = [n for n in nodes if n.name not in run.refused]
    unplanned = _replan(run, patterns, limit) if run.options.replan and free else {}
    lock = read_lock(run.site)
    if lock is None:
        raise GpustrapError(problem.no_lock(run.site))
    ready = _survey(run, free, lock, unplanned)
    if not run.options.check:
        opened = open_ledgers(
            run.site, ready, run.id, secrets=run.secrets, forks=run.options.forks, progress=run.progress
        )
        run.open_before = opened.before
        for name, error in opened.failed.items():
            run.refuse(name, error.problems)
        ready = [n for n in ready if n.name not in opened.failed]
    outcomes, interrupted = _converge(run, ready, lock) if ready else ((), False)
    checks: tuple[NodeChecks, ...] = ()
    try:
        checks = _verify(run, ready, outcomes) if not interrupted else ()
    except KeyboardInterrupt:  # what was done by then is still to be written down
        interrupted = True
    not_begun = [problem.not_begun(n.name, run.refused[n.name]) for n in nodes if n not in ready]
    return _finish(run, nodes, (*outcomes, *not_begun), checks, lock, interrupted=interrupted)


def _replan(run: _Run, patterns: Sequence[str] | None, limit: str | None) -> dict[str, tuple[Problem, ...]]:
    """Plan anew. Gives, by subject, why nodes have no new plan."""
    planned = plan(
        run.site,
        patterns=patterns,
        limit=limit,
        secrets=run.secrets,
        forks=run.options.forks,
        progress=lambda step: run.progress(Step(step.node, step.text)) if step.ok else None,
    )
    found: dict[str, tuple[Problem, ...]] = {}
    for trouble in planned.problems:
        found[trouble.subject] = (*found.get(trouble.subject, ()), trouble)
    return found


def _survey(run: _Run, nodes: Sequence[Node], lock: Lock, unplanned: Mapping[str, tuple[Problem, ...]]) -> list[Node]:
    """Read facts and keep the nodes that may be changed; `readiness` says which.

    Args:
        run: This apply.
        nodes: All nodes asked for.
        lock: The site's lock.
        unplanned: By subject, why a node could not be planned anew.
    """
    facts = read_facts(
        run.site,
        nodes,
        secrets=run.secrets,
        packages=lambda node: locked_packages(lock.nodes.get(node.name)),
        forks=run.options.forks,
        progress=lambda step: run.progress(Step(step.node, step.text)) if step.ok else None,
        asking=ASKING,
    )
    ready: list[Node] = []
    for node in nodes:
        answer = facts[node.name]
        refused = unplanned.get(f"node {node.name}", ())
        if isinstance(answer, GpustrapError):
            refused = refused or answer.problems
        elif not refused:
            refused, notes = readiness(node, answer, lock, run.options.tags)
            for note in notes:
                run.progress(Step(node.name, note))
        if refused:
            run.refuse(node.name, refused)
        else:
            ready.append(node)
    return ready


def _converge(run: _Run, nodes: Sequence[Node], lock: Lock) -> tuple[tuple[NodeRun, ...], bool]:
    """Run the roles and store the ledgers. Gives how each node ended, and whether it was interrupted."""
    options = run.options
    entries = {n.name: lock.nodes[n.name] for n in nodes}
    tally = Tally(entries, {name: tuple(entry.roles) for name, entry in entries.items()})
    run.password = "" if options.check else one_time_password(entries.values())
    mask = Mask([run.secrets.become_password, run.secrets.ssh_password, run.password or None])
    with RunLog(run.directory, mask) as log:

        def take(raw: Mapping[str, Any]) -> None:
            event = log.write(raw)
            for step in tally.take(event) if event is not None else ():
                run.progress(step)

        try:
            session = run_ansible(_settings(run, nodes), run.secrets, take)
        except Exception:
            _release(run, [n for n in nodes if not tally.began(n.name)])
            raise
    outcomes = tally.result(check=options.check)
    if not tally.ended() and not session.cancelled:
        run.problems.append(problem.ansible_failed(session.code, tally.said, run.directory))
    interrupted = session.cancelled
    try:
        if not options.check:
            _close(run, nodes, entries, outcomes, session.claims, claims_whole=_claims_whole(run, tally, session))
    except KeyboardInterrupt:
        interrupted = True
        run.problems.append(problem.ledgers_not_stored())
    outcomes = tuple(problem.explained(o, run.directory, interrupted=interrupted) for o in outcomes)
    for outcome in outcomes:
        text = f"{outcome.outcome.value}: {outcome.changed} changed, {outcome.ok} ok"
        run.progress(Step(outcome.node, text, done=True, ok=outcome.outcome in WELL))
    return outcomes, interrupted


def _settings(run: _Run, nodes: Sequence[Node]) -> Settings:
    options = run.options
    variables: dict[str, Any] = {"gpustrap_serial": options.serial} if options.serial else {}
    variables |= {"gpustrap_reboot": True} if options.reboot else {}
    variables |= {"gpustrap_mok_password": run.password} if run.password else {}
    return replace(
        settings_of(run.site, nodes, run.secrets),
        variables=variables,
        tags=options.tags,
        check=options.check,
        diff=options.diff,
        forks=options.forks,
    )


def _close(
    run: _Run,
    nodes: Sequence[Node],
    entries: Mapping[str, NodeLock],
    outcomes: tuple[NodeRun, ...],
    claims: Mapping[str, tuple[Claim, ...]],
    *,
    claims_whole: bool,
) -> None:
    """Store the ledgers of the nodes on which Ansible came to its end.

    Where it never came to any task, the mark of the run is taken back. It stays on the others: nobody knows what is
    still at work there.
    """
    _release(run, [n for n, o in zip(nodes, outcomes, strict=True) if o.outcome is Outcome.NOT_RUN])
    ended = {o.node: o for o in outcomes if o.outcome in WELL | {Outcome.FAILED}}
    failed = close_ledgers(
        run.site,
        [n for n in nodes if n.name in ended],
        run.id,
        complete={
            name: o.outcome in WELL and not o.waiting and not run.options.tags and claims_whole
            for name, o in ended.items()
        },
        lock_digests={name: entry_digest(entry) for name, entry in entries.items()},
        claims=claims,
        secrets=run.secrets,
        forks=run.options.forks,
        progress=run.progress,
    )
    for error in failed.values():
        run.problems += error.problems


def _release(run: _Run, nodes: Sequence[Node]) -> None:
    """Nothing was begun on these nodes, so no run stays open there that was not open before."""
    if not nodes or run.options.check:
        return
    failed = release_ledgers(
        run.site,
        nodes,
        run.id,
        run.open_before,
        secrets=run.secrets,
        forks=run.options.forks,
        progress=run.progress,
    )
    for error in failed.values():
        run.problems += error.problems


def _claims_whole(run: _Run, tally: Tally, session: SessionResult) -> bool:
    """Whether the callback that records claims had no trouble; what it missed, drift would never see.

    A cancelled run may cut its last line off. That line is of a node whose state is unknown anyway.
    """
    trouble = [said for said in tally.said if CLAIMS_PLUGIN in said]
    trouble += session.claims_lost if not session.cancelled else ()
    if trouble:
        run.problems.append(problem.claims_lost(trouble))
    return not trouble


def _verify(run: _Run, nodes: Sequence[Node], outcomes: Sequence[NodeRun]) -> tuple[NodeChecks, ...]:
    """Check the nodes on which the roles ended well; before the reboot that one needs, nothing on its GPUs can pass."""
    well = {o.node for o in outcomes if o.outcome in WELL and not o.waiting}
    if run.options.check or not run.options.verify or not well:
        return ()
    results = verify_nodes(
        run.site,
        [n for n in nodes if n.name in well],
        secrets=run.secrets,
        roles=run.options.tags or None,  # the others may never have been here
        forks=run.options.forks,
        progress=run.progress,
    )
    for result in results.values():
        if isinstance(result, GpustrapError):
            run.problems += result.problems
    return tuple(r for r in results.values() if isinstance(r, NodeChecks))


def _finish(
    run: _Run,
    nodes: Sequence[Node],
    outcomes: Sequence[NodeRun],
    checks: tuple[NodeChecks, ...],
    lock: Lock,
    *,
    interrupted: bool,
) -> Applied:
    """Write the run down and find its exit code."""
    by_name = {o.node: o for o in outcomes}
    summary = RunSummary(
        id=run.id,
        started=run.started,
        seconds=round(time.monotonic() - run.start, 3),
        check=run.options.check,
        tags=run.options.tags,
        simulated=any(lock.nodes[n.name].simulated for n in nodes if n.name in lock.nodes),
        nodes=tuple(by_name[n.name] for n in nodes),
        checks=checks,
    )
    write_summary(run.directory, summary)
    run_report.write(run.directory, summary, lock)
    refused = [p for problems in run.refused.values() for p in problems]
    codes = [p.exit_code for p in (*run.problems, *refused)]
    codes += [problem.OUTCOME_CODES[o.outcome] for o in outcomes if o.outcome in problem.OUTCOME_CODES]
    codes += [problem.BOOT_CODES[b.state] for o in outcomes for b in o.boots if b.state in problem.BOOT_CODES]
    codes += [VERDICT_CODES[c.verdict] for c in checks]
    codes += [ExitCode.INTERRUPTED] if interrupted else []
    # The first refusal of a node is told by the node's own line.
    further = [p for problems in run.refused.values() for p in problems[1:]]
    staged = any(b.staged for o in outcomes for b in o.boots)
    return Applied(
        summary, (*run.problems, *further), run.directory, worst(codes), password=run.password if staged else ""
    )
