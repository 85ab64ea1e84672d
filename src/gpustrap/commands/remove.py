"""remove: take from nodes what gpustrap installed of a part of the stack, after somebody agreed to the list."""

from __future__ import annotations

import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpustrap.commands import apply_problems as problem
from gpustrap.commands.apply_session import settings_of
from gpustrap.commands.ledgers import ask_verb, open_ledgers, release_ledgers
from gpustrap.content import content_root
from gpustrap.converge.masking import Mask
from gpustrap.converge.runlog import RunLog
from gpustrap.converge.session import SessionResult, Settings, run_ansible
from gpustrap.converge.tally import Tally
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.lock import Lock
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import SEE_BELOW, Progress, Step, silent
from gpustrap.model.removal import ROLES, SWITCHES, Part, Removal
from gpustrap.model.run import NodeRun, Outcome, TaskFailure
from gpustrap.model.site import Site
from gpustrap.resolve.digests import request_digest
from gpustrap.site.inventory import load_nodes
from gpustrap.site.lockfile import read_lock
from gpustrap.site.node_lock import hold_nodes

WELL = {Outcome.CHANGED, Outcome.UNCHANGED}


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What would be removed from one node, or why nothing can be."""

    node: Node
    removal: Removal = field(default_factory=Removal)
    problems: tuple[Problem, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """The worst of its problems."""
        return worst(p.exit_code for p in self.problems)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        problems = [{**asdict(p), "exit_code": int(p.exit_code)} for p in self.problems]
        return {"node": self.node.name, **self.removal.model_dump(), "problems": problems}


@dataclass(frozen=True, slots=True)
class Removed:
    """How a removal ended."""

    nodes: tuple[NodeRun, ...]
    problems: tuple[Problem, ...]
    directory: Path

    @property
    def exit_code(self) -> ExitCode:
        """The worst of all nodes."""
        codes = [p.exit_code for p in self.problems]
        codes += [problem.OUTCOME_CODES[n.outcome] for n in self.nodes if n.outcome in problem.OUTCOME_CODES]
        codes += [problem.BOOT_CODES[b.state] for n in self.nodes for b in n.boots if b.state in problem.BOOT_CODES]
        return worst(codes)


def foresee(
    site: Site,
    part: Part,
    *,
    patterns: Sequence[str] | None,
    limit: str | None = None,
    secrets: Secrets,
    forks: int = 20,
    progress: Progress = silent,
) -> tuple[Foreseen, ...]:
    """What would be removed from each node. Changes nothing.

    Raises:
        GpustrapError: No lock, broken inventory, or no such node.
    """
    nodes = load_nodes(site, patterns, limit)
    lock = read_lock(site)
    if lock is None:
        raise GpustrapError(problem.no_lock(site))
    refused = {n.name: found for n in nodes if (found := _still_wanted(part, n, lock))}
    answers = ask_verb(
        site,
        [n for n in nodes if n.name not in refused],
        "removal",
        lambda n: {"part": part.value, "wanted": list(lock.nodes[n.name].roles), "gpu_users": n.request.gpu_users},
        secrets=secrets,
        forks=forks,
        progress=progress,
        asking="asking what is gpustrap's own, and apt who needs it",
    )
    result = []
    for node in nodes:
        why = refused.get(node.name)
        one = Foreseen(node, problems=(why,)) if why else _foreseen(part, node, answers[node.name])
        result.append(one)
        progress(Step(node.name, SEE_BELOW if one.problems else "looked at", done=True, ok=not one.problems))
    return tuple(result)


def _still_wanted(part: Part, node: Node, lock: Lock) -> Problem | None:
    """The next apply would bring it back, or nobody knows whether it would; None where the lock has it no more."""
    entry, where = lock.nodes.get(node.name), f"node {node.name}"
    if entry is None or entry.request_digest != request_digest(node.request):
        message = "its gpustrap_* variables changed since the plan" if entry else "is not in the lock"
        return Problem("lock-stale", where, message, ExitCode.REFUSED, remedy=f"gpustrap plan {node.name}")
    still = [role for role in ROLES[part] if role in entry.roles]
    if not still:
        return None
    return Problem(
        code="still-wanted",
        subject=where,
        message=f"its lock has {' and '.join(still)}, so the next apply would install that again",
        exit_code=ExitCode.REFUSED,
        remedy=f"set {SWITCHES[part]} for {node.name}, then gpustrap plan {node.name}",
    )


REMEDIES = {
    "no-ledger": "gpustrap apply {node} records what it installs from now on; what is there already is yours to remove",
    "no-note-from-before": "remove it by apt, after a look at apt list --installed",
    "gpus-in-use": "stop them, or set gpustrap_gpu_users: allow for {node} and run gpustrap plan {node}",
    "no-dpkg": "on {node}: dnf remove, after a look at dnf history",
}


def _foreseen(part: Part, node: Node, answer: dict[str, Any] | GpustrapError) -> Foreseen:
    if not isinstance(answer, GpustrapError):
        try:
            return Foreseen(node, Removal.model_validate(answer))
        except ValidationError as error:
            answer = GpustrapError(
                Problem("probe-failed", f"node {node.name}", "its answer cannot be read", ExitCode.COULD_NOT_CHECK)
            )
            answer.__cause__ = error
    return Foreseen(node, problems=tuple(_explained(part, node.name, p) for p in answer.problems))


def _explained(part: Part, name: str, said: Problem) -> Problem:
    """What the node itself refuses, as a refusal with its own next step."""
    if said.exit_code is not ExitCode.COULD_NOT_CHECK or said.code == "probe-failed":
        return said
    again = REMEDIES.get(said.code, f"then gpustrap remove {part.value} {{node}}").replace("{node}", name)
    return replace(
        said, message=said.evidence, evidence="", exit_code=ExitCode.REFUSED, remedy=again.removeprefix("then ")
    )


def remove(
    site: Site,
    part: Part,
    foreseen: Sequence[Foreseen],
    *,
    reboot: bool = False,
    secrets: Secrets,
    forks: int = 20,
    progress: Progress = silent,
) -> Removed:
    """Remove what was foreseen, and nothing more.

    Args:
        site: The site.
        part: What.
        foreseen: The nodes, each with the list that somebody agreed to.
        reboot: Nodes may be rebooted where the removed driver is still loaded.
        secrets: Passwords of this run.
        forks: Nodes worked on at a time.
        progress: Told how it goes.
    """
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{random.token_hex(3)}"
    directory, problems = site.runs / run_id, []
    lists = {f.node.name: f.removal for f in foreseen if not f.problems}
    nodes = [f.node for f in foreseen if f.node.name in lists]
    with hold_nodes(site, list(lists), run_id) as busy:
        problems += [problem.node_busy(name, holder) for name, holder in busy.items()]
        free = [n for n in nodes if n.name not in busy]
        opened = open_ledgers(site, free, run_id, secrets=secrets, forks=forks, progress=progress)
        problems += [p for error in opened.failed.values() for p in error.problems]
        ready = [n for n in free if n.name not in opened.failed]
        if not ready:
            return Removed((), tuple(problems), directory)
        settings = replace(
            settings_of(site, ready, secrets),
            playbook=content_root() / "playbooks" / "remove.yml",
            variables={
                "gpustrap_remove": part.value,
                "gpustrap_remove_approved": {n.name: lists[n.name].model_dump(mode="json") for n in ready},
                **({"gpustrap_reboot": True} if reboot else {}),
            },
            forks=forks,
        )
        session, tally = _play(settings, [n.name for n in ready], directory, secrets, progress)
        if not tally.ended() and not session.cancelled:
            problems.append(problem.ansible_failed(session.code, tally.said, directory))
        outcomes = tally.result(check=False)
        well = [n for n, o in zip(ready, outcomes, strict=True) if o.outcome in {*WELL, Outcome.NOT_RUN}]
        failed = release_ledgers(site, well, run_id, opened.before, secrets=secrets, forks=forks, progress=progress)
        problems += [p for error in failed.values() for p in error.problems]
    for outcome in outcomes:
        progress(Step(outcome.node, outcome.outcome.value, done=True, ok=outcome.outcome in WELL))
    return Removed(tuple(_told(part, o, directory) for o in outcomes), tuple(problems), directory)


def _play(
    settings: Settings, names: Sequence[str], directory: Path, secrets: Secrets, progress: Progress
) -> tuple[SessionResult, Tally]:
    tally = Tally(names, {})
    with RunLog(directory, Mask([secrets.become_password, secrets.ssh_password])) as log:

        def take(raw: Mapping[str, Any]) -> None:
            event = log.write(raw)
            for step in tally.take(event) if event is not None else ():
                progress(step)

        return run_ansible(settings, secrets, take), tally


def _told(part: Part, node: NodeRun, directory: Path) -> NodeRun:
    """The node, with what to do where it did not end well: the removal goes on where it was."""
    if node.outcome in WELL or (node.failure and node.failure.hint):
        return node
    again = f"read {directory}/ansible.log, then gpustrap remove {part.value} {node.node}"
    failure = node.failure or TaskFailure(role="remove.yml", task=node.outcome.value, message="it came to no end")
    return node.model_copy(update={"failure": failure.model_copy(update={"hint": again})})
