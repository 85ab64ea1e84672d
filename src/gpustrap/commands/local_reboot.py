"""Reboots this machine itself where its driver needs it; the apply that needed it goes on once afterwards, as root."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpustrap.commands.apply import Applied
from gpustrap.commands.ledgers import ask_verb
from gpustrap.content import PACKAGE
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Node, Secrets
from gpustrap.model.run import BootStep
from gpustrap.model.site import Site
from gpustrap.report import resume_text
from gpustrap.site.inventory import VAULT_VARIABLE

NOTE = Path("/etc/motd.d/gpustrap")
LOG = "/var/log/gpustrap/resume.log"
MOST_REBOOTS = 2  # of one apply: for the kernel, and for the driver
ROOT_ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Again:
    """How the apply goes on after the reboot.

    Attributes:
        tags: Only these roles.
        verify: Check the machine afterwards.
        reboots: How often this apply has rebooted it already.
    """

    tags: tuple[str, ...] = ()
    verify: bool = True
    reboots: int = 0

    def command(self, site: Site) -> list[str]:
        """By the very interpreter that runs now: gpustrap may be in a virtual environment of the user's."""
        words = [sys.executable, "-P", "-m", "gpustrap", "apply", "--local", "--site", str(site.root.resolve())]
        words += ["--reboot", "--resumed", str(self.reboots + 1)]
        words += ["--tags", ",".join(self.tags)] if self.tags else []
        return words if self.verify else [*words, "--no-verify"]


def wants_reboot(applied: Applied) -> BootStep | None:
    """The step of an apply of this machine that waits for its reboot, if that is all it waits for."""
    step = applied.summary.nodes[0].waiting if len(applied.summary.nodes) == 1 else None
    return step if step and step.state == "reboot-needed" else None


def reboot_here(site: Site, node: Node, step: BootStep, again: Again, secrets: Secrets) -> None:
    """Begin the reboot; it comes a moment later, so that this program can say goodbye.

    Args:
        site: The site.
        node: The node that this machine is.
        step: What the reboot is for.
        again: What goes on afterwards.
        secrets: Has the sudo password, if one is needed.

    Raises:
        GpustrapError: Apply could not go on by itself, or a reboot for the same was tried already; none was begun.
    """
    if again.reboots >= MOST_REBOOTS:
        raise GpustrapError(_in_vain(node.name, f"it was rebooted {again.reboots} times in this apply"))
    vault = os.environ.get(VAULT_VARIABLE)
    needs = [site.root.resolve(), Path.cwd(), Path(sys.prefix), PACKAGE, *([Path(vault).resolve()] if vault else [])]
    kept = {n: v for n, v in os.environ.items() if n == VAULT_VARIABLE or n.startswith("ANSIBLE_VAULT_")}
    arguments = {
        "command": again.command(site),
        "directory": str(Path.cwd()),
        "environment": ROOT_ENVIRONMENT | kept,
        "needs": list(dict.fromkeys(map(str, needs))),
        "note": resume_text.under_way(datetime.now(UTC), step.reason, LOG),
        "stage": step.stage,
        "target": step.target,
        "why": step.reason,
    }
    answer = ask_verb(site, [node], "reboot-here", lambda _node: arguments, secrets=secrets)[node.name]
    if isinstance(answer, GpustrapError):
        first = answer.problems[0]
        if first.code == "resume-impossible":
            raise GpustrapError(_cannot_go_on(node.name, first.evidence))
        raise GpustrapError(_in_vain(node.name, first.evidence)) if first.code == "reboot-loop" else answer


def leave_note(site: Site, node: Node, applied: Applied | None, secrets: Secrets) -> None:
    """Say at the next logins how it ended; or, without anything that ended, take an earlier note away.

    Raises:
        GpustrapError: It could not be written.
    """
    text = resume_text.ended(datetime.now(UTC), applied.exit_code, applied.directory, LOG) if applied else ""
    answer = ask_verb(site, [node], "leave-note", lambda _node: {"note": text}, secrets=secrets)[node.name]
    if isinstance(answer, GpustrapError):
        raise answer


def _cannot_go_on(name: str, why: str) -> Problem:
    return Problem(
        code="resume-impossible",
        subject=f"node {name}",
        message="was not rebooted, because apply could not go on by itself afterwards",
        exit_code=ExitCode.REBOOT_NEEDED,
        evidence=why,
        remedy="sudo systemctl reboot; then log in and run gpustrap apply --local",
    )


def _in_vain(name: str, why: str) -> Problem:
    return Problem(
        code="reboot-loop",
        subject=f"node {name}",
        message="was not rebooted again: it was tried, and it did not help",
        exit_code=ExitCode.APPLY_FAILED,
        evidence=why,
        remedy="see why the driver does not load: sudo dmesg | grep -iE 'nvidia|nvrm', then gpustrap apply --local",
    )
