"""gpustrap apply."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gpustrap.cli.options import (
    AskBecomeOption,
    AskPasswordOption,
    BecomePasswordFdOption,
    ForksOption,
    FormatOption,
    LimitOption,
    LocalOption,
    NodesArgument,
    PasswordFdOption,
    SiteOption,
    examples,
)
from gpustrap.cli.output import Format, emit, say_next, show_problems, stderr, tell


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(
        "apply",
        epilog=examples(
            "gpustrap apply",
            "gpustrap apply --check --diff",
            "gpustrap apply n1 --replan",
            "gpustrap apply --limit rack1 --serial 2",
            "gpustrap apply --local (on the machine itself)",
        ),
    )(apply)


def apply(
    *,
    nodes: NodesArgument = None,
    site: SiteOption = Path(),
    limit: LimitOption = None,
    local: LocalOption = False,
    tags: Annotated[
        str | None, typer.Option("--tags", "-t", help="Only these roles, comma separated; leaves the run incomplete.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; say what would change.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Write differences in files into the run's ansible.log.")
    ] = False,
    forks: ForksOption = 20,
    serial: Annotated[
        str | None,
        typer.Option(
            "--serial",
            help="Nodes, or a percentage, that finish before the next begin, e.g. 1 or 25%. If a whole batch fails "
            "(with 1: one node), the rest is left alone.",
        ),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Check the nodes afterwards.")] = True,
    replan: Annotated[bool, typer.Option("--replan", help="Plan first, so that a stale lock is no obstacle.")] = False,
    reboot: Annotated[
        bool, typer.Option("--reboot", help="Reboot nodes whose driver needs it, once, and go on when they are back.")
    ] = False,
    form: FormatOption = Format.TABLE,
    password_fd: PasswordFdOption = None,
    become_password_fd: BecomePasswordFdOption = None,
    ask_password: AskPasswordOption = False,
    ask_become: AskBecomeOption = False,
    resumed: Annotated[
        int, typer.Option("--resumed", min=0, hidden=True, help="How often this apply of --local has rebooted already.")
    ] = 0,
) -> None:
    """Bring nodes to the lock: run the roles, record what they manage, verify the result.

    One node's failure stops no other (but see --serial). Run it again after a failure or Ctrl-C: it continues.
    Exit codes: 0 done, 3 refused or stale plan, 4 unreachable, 5 failed, 6 state unknown, 11/12 verify warned/failed,
    20 a person has to enrol a key, 21 a reboot is needed.
    """
    from gpustrap.cli.local import choose_local, finish_local
    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.apply import ApplyOptions
    from gpustrap.commands.apply import apply as run_apply
    from gpustrap.commands.local_reboot import Again
    from gpustrap.model.site import Site
    from gpustrap.report.apply_text import render
    from gpustrap.site.lockfile import read_lock

    options = ApplyOptions(
        tags=tuple(t.strip() for t in tags.split(",") if t.strip()) if tags else (),
        check=check,
        diff=diff,
        forks=forks,
        serial=serial,
        verify=verify,
        replan=replan,
        reboot=reboot,
    )
    secrets = read_secrets(
        password_fd=password_fd,
        become_password_fd=become_password_fd,
        ask_password=ask_password,
        ask_become=ask_become,
    )
    place = Site(site.resolve())
    if local:
        nodes, secrets = choose_local(place, secrets, nodes, limit)
    with progress("Checking what would change" if check else "Applying") as say:
        applied = run_apply(place, patterns=nodes, limit=limit, options=options, secrets=secrets, progress=say)
    data = {
        **applied.summary.model_dump(mode="json"),
        "problems": [{**asdict(p), "exit_code": int(p.exit_code)} for p in applied.problems],
        "directory": str(applied.directory),
        "exit_code": int(applied.exit_code),
    }
    emit(data, render(applied.summary, read_lock(place), applied.directory), form)
    if applied.password:
        waiting = [n.node for n in applied.summary.nodes if any(b.staged for b in n.boots)]
        tell(f"One-time password for MOK Manager on {', '.join(waiting)}: {applied.password}")
        tell("It is shown this once and written down nowhere. The steps at the console are above.")
    show_problems(applied.problems)
    if check and any(node.changed_tasks for node in applied.summary.nodes):
        if diff:
            stderr.print(f"Differences: {applied.directory / 'ansible.log'}")
        if not applied.problems:
            which = ["--local"] if local else [*(nodes or ()), *(("--limit", limit) if limit else ())]
            narrow = [*which, *(("--tags", tags) if tags else ())]
            say_next(shlex.join(["gpustrap", "apply", *narrow, *(("--replan",) if replan else ())]))
    code = applied.exit_code
    if local and nodes and not check:
        again = Again(options.tags, verify=verify, reboots=resumed)
        may_ask = form is Format.TABLE
        code = finish_local(place, nodes[0], applied, secrets, again, allowed=reboot, may_ask=may_ask)
    raise typer.Exit(int(code))
