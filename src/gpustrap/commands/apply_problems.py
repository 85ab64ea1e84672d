"""What can go wrong in an apply, as data: where, what, the tool's own words, the next step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.lock import NodeLock
from gpustrap.model.roles import ROLES
from gpustrap.model.run import NodeRun, Outcome, TaskFailure
from gpustrap.model.site import Site

OUTCOME_CODES = {
    Outcome.FAILED: ExitCode.APPLY_FAILED,
    Outcome.UNREACHABLE: ExitCode.UNREACHABLE,
    Outcome.UNKNOWN: ExitCode.STATE_UNKNOWN,
    Outcome.NOT_RUN: ExitCode.REFUSED,
}

# Of a state of `BootStep`; a step that failed is told by its node's outcome.
BOOT_CODES = {
    "reboot-needed": ExitCode.REBOOT_NEEDED,
    "person": ExitCode.WAITING_FOR_PERSON,
    "next-boot": ExitCode.WARNINGS,
}


def not_begun(name: str, problems: Sequence[Problem]) -> NodeRun:
    """A node that was refused or could not be asked before anything was changed on it."""
    first = problems[0]
    unreachable = first.exit_code is ExitCode.UNREACHABLE
    return NodeRun(
        node=name,
        outcome=Outcome.UNREACHABLE if unreachable else Outcome.NOT_RUN,
        failure=TaskFailure(
            role="before the first change",
            task=first.code,
            message="\n".join(part for part in (first.message, first.evidence.strip()) if part),
            hint=first.remedy,
        ),
    )


def explained(node: NodeRun, directory: Path, *, interrupted: bool) -> NodeRun:
    """A node of the run, with a reason and a next step where Ansible's own words give none."""
    name = node.node
    if node.outcome is Outcome.UNKNOWN:
        why = "interrupted in the middle" if interrupted else "Ansible ended in the middle"
        failure = TaskFailure(
            role="in the middle",
            task="state-unknown",
            message=f"{why}; its last task may still be at work there, and the run stays marked as open",
            hint=f"gpustrap apply {name}",
        )
    elif node.outcome is Outcome.NOT_RUN:
        failure = TaskFailure(
            role="before the first change",
            task="not-run",
            message="its turn never came, so it was not changed",
            hint=f"gpustrap apply {name}",
        )
    elif node.failure and not node.failure.hint:
        hint = f"read {directory}/ansible.log, then gpustrap apply {name}"
        failure = node.failure.model_copy(update={"hint": hint})
    else:
        return node
    return node.model_copy(update={"failure": failure})


def ansible_failed(code: int, said: Sequence[str], directory: Path) -> Problem:
    """Ansible itself came to no end: a broken playbook, a missing program."""
    return Problem(
        code="ansible-failed",
        subject="ansible-playbook",
        message=f"ended with code {code} before it was done",
        exit_code=ExitCode.INTERNAL,
        evidence="\n".join(said[-5:]),
        remedy=f"read {directory}/ansible.log",
    )


def claims_lost(trouble: Sequence[str]) -> Problem:
    """The callback failed, so some resources of this run are not in the ledgers."""
    return Problem(
        code="claims-lost",
        subject="this run",
        message="not everything it manages could be recorded, so it does not count as complete",
        exit_code=ExitCode.INTERNAL,
        evidence="\n".join(trouble[:5]),
        remedy="open an issue with these words",
    )


def ledgers_not_stored() -> Problem:
    """Ctrl-C after the roles had run: what they left was not recorded on every node."""
    return Problem(
        code="ledger-not-stored",
        subject="this run",
        message="interrupted while its result was being stored on the nodes; it stays marked as open there",
        exit_code=ExitCode.INTERRUPTED,
        remedy="gpustrap apply",
    )


def node_busy(name: str, holder: str) -> Problem:
    """Two runs at once on a node would each find the other's half-done work, and overwrite its ledger."""
    return Problem(
        code="node-busy",
        subject=f"node {name}",
        message=f"another apply ({holder}) is at work on it" if holder else "another apply is at work on it",
        exit_code=ExitCode.REFUSED,
        remedy=f"wait for it to end, then gpustrap apply {name}",
    )


def roles_not_in_lock(name: str, tags: Sequence[str], entry: NodeLock) -> Problem | None:
    """A role the node was not planned for would run nothing and look like success; None where all were."""
    missing = [t for t in tags if t not in entry.roles]
    if not missing:
        return None
    there = [t for t in tags if t in entry.roles] or list(entry.roles)
    verb = "is" if len(missing) == 1 else "are"
    return Problem(
        code="role-not-in-lock",
        subject=f"node {name}",
        message=f"{', '.join(missing)} {verb} not in the lock of {name}; nothing was run",
        exit_code=ExitCode.REFUSED,
        remedy=f"gpustrap apply {name} --tags {','.join(there)}" if there else f"gpustrap plan {name}",
    )


def no_lock(site: Site) -> Problem:
    """The site was never planned."""
    return Problem(
        code="no-lock",
        subject=str(site.lock),
        message="there is no plan to apply",
        exit_code=ExitCode.REFUSED,
        remedy="gpustrap plan",
    )


def refuse_bad_serial(serial: str | None) -> None:
    """Ansible would find it out only when every node is already marked as being worked on.

    Raises:
        GpustrapError: It is neither a number of nodes nor a percentage of them.
    """
    if serial is not None and not re.fullmatch(r"[1-9]\d*%?", serial, re.ASCII):
        raise GpustrapError(
            Problem(
                code="bad-serial",
                subject=f"--serial {serial}",
                message="that is no number of nodes, and no percentage of them",
                exit_code=ExitCode.USAGE,
                remedy="write --serial 1 or --serial 25%",
            )
        )


def refuse_unknown_tags(tags: Sequence[str]) -> None:
    """A misspelt tag would run nothing and look like success.

    Raises:
        GpustrapError: A tag is no role.
    """
    wrong = [t for t in tags if t not in ROLES]
    if wrong:
        raise GpustrapError(
            Problem(
                code="no-such-role",
                subject=f"--tags {','.join(tags)}",
                message=f"there is no role {', '.join(wrong)}",
                exit_code=ExitCode.USAGE,
                remedy=f"use one of {', '.join(ROLES)}",
            )
        )
