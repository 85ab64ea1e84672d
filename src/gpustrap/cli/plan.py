"""gpustrap plan."""

from __future__ import annotations

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
    NodesArgument,
    PasswordFdOption,
    SiteOption,
    examples,
)
from gpustrap.cli.output import Format, emit, say_next, show_problems, stderr


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(
        "plan",
        epilog=examples(
            "gpustrap plan",
            "gpustrap plan n1",
            "gpustrap plan --upgrade",
            "gpustrap plan --check (in CI)",
        ),
    )(plan)


def plan(
    nodes: NodesArgument = None,
    *,
    site: SiteOption = Path(),
    limit: LimitOption = None,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Take the newest versions instead of keeping the locked ones.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 3 if the lock would change.")] = False,
    form: FormatOption = Format.TABLE,
    forks: ForksOption = 20,
    password_fd: PasswordFdOption = None,
    become_password_fd: BecomePasswordFdOption = None,
    ask_password: AskPasswordOption = False,
    ask_become: AskBecomeOption = False,
) -> None:
    """Decide what each node gets, show why, and write it to gpustrap.lock.yml for apply.

    Nodes are only read. Locked versions are kept until --upgrade. A node that is refused or cannot be reached keeps
    its old entry. Exit codes: 0 every node has a plan, 3 refused or (--check) stale, 4 unreachable.
    """
    from dataclasses import asdict

    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.plan import plan as plan_site
    from gpustrap.model.site import Site
    from gpustrap.report.plan_text import render

    secrets = read_secrets(
        password_fd=password_fd,
        become_password_fd=become_password_fd,
        ask_password=ask_password,
        ask_become=ask_become,
    )
    place = Site(site.resolve())
    with progress("Planning") as say:
        planned = plan_site(
            place,
            patterns=nodes,
            limit=limit,
            upgrade=upgrade,
            check=check,
            secrets=secrets,
            forks=forks,
            progress=say,
        )
    data = {
        "nodes": {name: entry.model_dump(mode="json") for name, entry in planned.nodes.items()},
        "changes": list(planned.changes),
        "problems": [{**asdict(p), "exit_code": int(p.exit_code)} for p in planned.problems],
        "exit_code": int(planned.exit_code),
    }
    emit(data, render(planned.nodes, planned.changes, complete=not planned.problems), form)
    show_problems(planned.problems)
    if planned.written:
        stderr.print(f"wrote {place.lock.name}", markup=False)
    elif not check and not planned.problems:
        stderr.print(f"{place.lock.name} is up to date", markup=False)
    if planned.written and planned.changes:
        say_next("gpustrap apply")
    raise typer.Exit(int(planned.exit_code))
