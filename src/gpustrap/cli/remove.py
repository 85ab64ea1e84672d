"""gpustrap remove."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpustrap.cli.options import (
    AskBecomeOption,
    AskPasswordOption,
    BecomePasswordFdOption,
    ForksOption,
    FormatOption,
    LimitOption,
    LocalOption,
    PasswordFdOption,
    SiteOption,
    examples,
)
from gpustrap.cli.output import Format, emit, show_problems
from gpustrap.model.removal import Part

if TYPE_CHECKING:
    from gpustrap.errors import Problem


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(
        "remove",
        epilog=examples(
            "gpustrap remove driver n1 --check",
            "gpustrap remove driver n1 --reboot",
            "gpustrap remove cuda n1 n2 --yes",
        ),
    )(remove)


def remove(
    *,
    part: Annotated[Part, typer.Argument(metavar="PART", help="driver (with its fabric manager), or cuda.")],
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="NODE...", help="Nodes or groups; at least one, or --local.")
    ] = None,
    site: SiteOption = Path(),
    limit: LimitOption = None,
    local: LocalOption = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; say what would go and what stays.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    reboot: Annotated[
        bool, typer.Option("--reboot", help="Reboot nodes where the removed driver is still loaded, once.")
    ] = False,
    form: FormatOption = Format.TABLE,
    forks: ForksOption = 20,
    password_fd: PasswordFdOption = None,
    become_password_fd: BecomePasswordFdOption = None,
    ask_password: AskPasswordOption = False,
    ask_become: AskBecomeOption = False,
) -> None:
    """Remove what gpustrap installed of a part of the stack. Shows it first, and asks.

    Never removes what was there before gpustrap, what something else needs, or files that were changed since. What the
    plan still has is refused: set gpustrap_gpu: none (or gpustrap_cuda_version: none) and plan first.
    Exit codes: 0 done, 3 refused, 4 unreachable, 5 failed, 13 could not look, 21 removed, and a reboot is needed.
    """
    from gpustrap.cli.local import choose_local
    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands import remove as commands
    from gpustrap.errors import GpustrapError
    from gpustrap.exitcodes import worst
    from gpustrap.model.site import Site
    from gpustrap.report import remove_text

    if not nodes and not local:
        raise GpustrapError(_no_node(part))
    secrets = read_secrets(
        password_fd=password_fd,
        become_password_fd=become_password_fd,
        ask_password=ask_password,
        ask_become=ask_become,
    )
    place = Site(site.resolve())
    if local:
        nodes, secrets = choose_local(place, secrets, nodes, limit)
    with progress("Looking what gpustrap installed") as say:
        foreseen = commands.foresee(
            place, part, patterns=nodes, limit=limit, secrets=secrets, forks=forks, progress=say
        )
    problems = [p for one in foreseen for p in one.problems]
    going = [one for one in foreseen if not one.problems]
    for one in going if form is Format.TABLE else ():
        emit(None, remove_text.foreseen(one.node.name, one.removal), form)
    data = {"nodes": [one.as_data() for one in foreseen], "removed": []}
    code = worst(p.exit_code for p in problems)
    something = any(one.removal.packages or one.removal.files for one in going)
    if going and not check and (something or part is Part.DRIVER):
        if something and not yes:
            _confirm(form)
        with progress("Removing") as say:
            done = commands.remove(place, part, going, reboot=reboot, secrets=secrets, forks=forks, progress=say)
        problems += done.problems
        code = worst([code, done.exit_code])
        data["removed"] = [node.model_dump(mode="json") for node in done.nodes]
        if form is Format.TABLE:
            emit(None, remove_text.ended(done.nodes), form)
    if form is Format.JSON:
        emit({**data, "exit_code": int(code)}, "", form)
    show_problems(problems)
    raise typer.Exit(int(code))


def _confirm(form: Format) -> None:
    """Ask on the terminal; without one, and for programs, the agreement is an option."""
    from gpustrap.errors import GpustrapError, Problem
    from gpustrap.exitcodes import ExitCode

    if form is Format.JSON or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise GpustrapError(
            Problem(
                code="not-confirmed",
                subject="option --yes",
                message="there is nobody to ask whether that may be removed, so nothing was",
                exit_code=ExitCode.REFUSED,
                remedy="look at it with --check, then add --yes",
            )
        )
    typer.confirm("Remove that?", default=False, abort=True, err=True)


def _no_node(part: Part) -> Problem:
    from gpustrap.errors import Problem
    from gpustrap.exitcodes import ExitCode

    return Problem(
        code="no-node-named",
        subject="gpustrap remove",
        message="names no node, and what it does is never meant for all of them",
        exit_code=ExitCode.USAGE,
        remedy=f"gpustrap remove {part.value} NODE --check",
    )
