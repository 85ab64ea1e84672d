"""``--local``: the one node that this machine is, its sudo password, its reboot, and whose the site stays."""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING

import typer

from gpustrap.cli.output import show_problems, tell
from gpustrap.cli.secrets import ask_sudo_password
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst

if TYPE_CHECKING:
    from gpustrap.commands.apply import Applied
    from gpustrap.commands.local_reboot import Again
    from gpustrap.model.node import Secrets
    from gpustrap.model.site import Site


def choose_local(site: Site, secrets: Secrets, nodes: list[str] | None, limit: str | None) -> tuple[list[str], Secrets]:
    """The name of this machine's node, and the passwords with sudo's, asked for on the terminal where it wants one.

    Raises:
        GpustrapError: Other nodes were named as well, it is not plain which node this is, or there is no terminal.
    """
    from gpustrap.report.next_step import remember_here
    from gpustrap.site.inventory import this_machine
    from gpustrap.site.owner import give_back
    from gpustrap.ssh.local import sudo_asks

    if nodes or limit:
        raise GpustrapError(
            Problem(
                code="local-and-nodes",
                subject="option --local",
                message="it means this machine alone, and nodes were named as well",
                exit_code=ExitCode.USAGE,
                evidence=" ".join([*(nodes or ()), *(["--limit", limit] if limit else ())]),
                remedy="leave one of the two out",
            )
        )
    atexit.register(give_back, site)  # whatever happens meanwhile
    name = this_machine(site)
    remember_here(name)
    if secrets.become_password is None and sudo_asks(name):
        secrets = ask_sudo_password(secrets)
    return [name], secrets


def finish_local(
    site: Site, name: str, applied: Applied, secrets: Secrets, again: Again, *, allowed: bool, may_ask: bool
) -> ExitCode:
    """See to the reboot that an apply of this machine waits for, and to the note at its logins.

    Args:
        site: The site.
        name: The node that this machine is.
        applied: How the apply ended.
        secrets: Passwords of this run.
        again: How it would go on after a reboot, and whether it did already.
        allowed: The reboot was asked for.
        may_ask: Somebody is there to be asked.

    Returns:
        What the program ends with.
    """
    from gpustrap.commands.local_reboot import LOG, NOTE, leave_note, reboot_here, wants_reboot
    from gpustrap.site.inventory import load_nodes

    (node,) = load_nodes(site, [name])
    step = wants_reboot(applied)
    try:
        if step and (allowed or node.request.reboot or (may_ask and _agreed(step.reason))):
            reboot_here(site, node, step, again, secrets)
            tell(f"Rebooting now. apply goes on by itself; how it ended is shown at the next login (log: {LOG}).")
        elif again.reboots or NOTE.exists():
            leave_note(site, node, applied if again.reboots else None, secrets)
    except GpustrapError as error:
        show_problems(error.problems)
        return worst((applied.exit_code, error.exit_code))
    return applied.exit_code


def _agreed(why: str) -> bool:
    """Ask whoever sits there; without a terminal nobody does."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    tell(f"This machine has to reboot: {why}.")
    return typer.confirm("Reboot it now, and go on by itself afterwards?", default=False, err=True)
