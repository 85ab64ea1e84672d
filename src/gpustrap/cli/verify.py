"""gpustrap verify."""

from __future__ import annotations

from pathlib import Path

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
from gpustrap.cli.output import Format, emit, show_problems


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(
        "verify",
        epilog=examples(
            "gpustrap verify",
            "gpustrap verify n1 rack2",
            "gpustrap verify --format json",
        ),
    )(verify)


def verify(
    nodes: NodesArgument = None,
    *,
    site: SiteOption = Path(),
    limit: LimitOption = None,
    local: LocalOption = False,
    form: FormatOption = Format.TABLE,
    forks: ForksOption = 20,
    password_fd: PasswordFdOption = None,
    become_password_fd: BecomePasswordFdOption = None,
    ask_password: AskPasswordOption = False,
    ask_become: AskBecomeOption = False,
) -> None:
    """Prove what nodes were given: run a container, make an environment, log in anew.

    The nodes are left as found. Nothing passes silently: a check that cannot run has failed.
    Exit codes: 0 all passed, 11 warnings, 12 a check failed, 13 could not check, 4 unreachable.
    """
    from dataclasses import asdict

    from gpustrap.cli.local import choose_local
    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.verify import exit_code, verify_nodes
    from gpustrap.errors import GpustrapError
    from gpustrap.model.check import NodeChecks
    from gpustrap.model.site import Site
    from gpustrap.report.verify_text import render
    from gpustrap.site.inventory import load_nodes

    secrets = read_secrets(
        password_fd=password_fd,
        become_password_fd=become_password_fd,
        ask_password=ask_password,
        ask_become=ask_become,
    )
    place = Site(site.resolve())
    if local:
        nodes, secrets = choose_local(place, secrets, nodes, limit)
    chosen = load_nodes(place, nodes, limit)
    with progress("Verifying") as say:
        results = verify_nodes(place, chosen, secrets=secrets, forks=forks, progress=say)
    checks = [r for r in results.values() if isinstance(r, NodeChecks)]
    errors = [r for r in results.values() if isinstance(r, GpustrapError)]
    data = {
        "nodes": [{**c.model_dump(mode="json"), "verdict": c.verdict.value} for c in checks],
        "problems": [{**asdict(p), "exit_code": int(p.exit_code)} for e in errors for p in e.problems],
        "exit_code": int(exit_code(results)),
    }
    emit(data, render(checks), form)
    show_problems(p for e in errors for p in e.problems)
    raise typer.Exit(int(exit_code(results)))
