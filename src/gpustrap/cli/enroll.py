"""gpustrap enroll."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from gpustrap.cli.options import (
    FIRST_CONTACT,
    AskBecomeOption,
    AskPasswordOption,
    BecomePasswordFdOption,
    ForksOption,
    FormatOption,
    LimitOption,
    NodesArgument,
    PasswordFdOption,
    SiteOption,
    examples,
)
from gpustrap.cli.output import Format, emit, say_next, show_problems, stderr, tell
from gpustrap.report.escape import visible
from gpustrap.report.layout import Columns, Hanging

if TYPE_CHECKING:
    from gpustrap.commands.enroll import Enrolled

EPILOG = examples(
    FIRST_CONTACT,
    "gpustrap enroll --fingerprint SHA256:… n1",
    "gpustrap enroll --replace n1",
    "gpustrap enroll -K --passwordless-sudo rack1",
)


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("enroll", epilog=EPILOG)(enroll)


def enroll(
    nodes: NodesArgument = None,
    *,
    site: SiteOption = Path(),
    limit: LimitOption = None,
    accept_new: Annotated[
        bool, typer.Option("--accept-new", help="Take the host keys of machines that are not known yet.")
    ] = False,
    fingerprint: Annotated[
        str | None,
        typer.Option("--fingerprint", metavar="SHA256:…", help="Take this host key and no other; for one node."),
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option("--replace", metavar="NODE", help="Take the changed host key of this node; may be repeated."),
    ] = None,
    passwordless_sudo: Annotated[
        bool, typer.Option("--passwordless-sudo", help="Let the login use sudo without a password (sudoers drop-in).")
    ] = False,
    ask_password: AskPasswordOption = False,
    ask_become: AskBecomeOption = False,
    password_fd: PasswordFdOption = None,
    become_password_fd: BecomePasswordFdOption = None,
    form: FormatOption = Format.TABLE,
    forks: ForksOption = 20,
) -> None:
    """Make first contact: check host keys, install the site's SSH key, test sudo, see to python3.

    Can be repeated at any time and does only what is missing. Passwords also come from GPUSTRAP_SSH_PASSWORD and
    GPUSTRAP_BECOME_PASSWORD; without a sudo password the SSH password is tried.
    Exit codes: 0 every node is enrolled, 4 a node could not be reached, logged in to or trusted.
    """
    from dataclasses import asdict

    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.enroll import Enrolled, Terms, enroll_nodes
    from gpustrap.errors import GpustrapError
    from gpustrap.exitcodes import worst
    from gpustrap.model.node import Escalation
    from gpustrap.model.site import Site
    from gpustrap.site.inventory import load_nodes

    secrets = read_secrets(
        password_fd=password_fd,
        become_password_fd=become_password_fd,
        ask_password=ask_password,
        ask_become=ask_become,
    )
    place = Site(site.resolve())
    chosen = load_nodes(place, [*(nodes or ()), *(replace or ())], limit)
    for node in chosen:
        if node.endpoint.local:
            tell(f"node {node.name} is this machine itself: nothing to enroll")
    chosen = tuple(n for n in chosen if not n.endpoint.local)
    terms = Terms(accept_new, fingerprint, frozenset(replace or ()), passwordless_sudo)
    with progress("Enrolling") as say:
        results = enroll_nodes(place, chosen, secrets=secrets, terms=terms, forks=forks, progress=say)
    enrolled = [r for r in results.values() if isinstance(r, Enrolled)]
    failed = [r for r in results.values() if isinstance(r, GpustrapError)]
    problems = [p for error in failed for p in error.problems]
    code = worst(error.exit_code for error in failed)
    data = {
        "nodes": [r.as_json() for r in enrolled],
        "problems": [{**asdict(p), "exit_code": int(p.exit_code)} for p in problems],
        "exit_code": int(code),
    }
    if enrolled or form is Format.JSON:
        emit(data, _table(enrolled), form)
    for result in enrolled:
        for warning in result.warnings:
            stderr.print(Hanging(visible(f"node {result.node}: {warning}"), Text("! ", style="yellow")))
    show_problems(problems)
    asking = [r.node for r in enrolled if r.access.escalation is Escalation.PASSWORD]
    if asking:
        why = f"sudo on {', '.join(asking)} asks for a password"
        say_next(f"gpustrap inspect -K ({why}; or once: gpustrap enroll --passwordless-sudo -K)")
    raise typer.Exit(int(code))


def _table(enrolled: list[Enrolled]) -> Columns:
    """Two lines a node: a fingerprint is compared by eye, so no part of it may be cut or folded away."""
    rows = []
    for r in enrolled:
        tty = " with a terminal" if r.access.requiretty else ""
        ways = f"by {r.login}, sudo: {r.access.escalation.value}{tty}, python {r.python}"
        rows.append((visible(r.node), visible(f"{r.address} {ways}\n{r.host_key.fingerprint} {r.host_key.how}")))
    return Columns(("node", "host key, login, sudo, python"), rows)
