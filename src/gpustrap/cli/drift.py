"""gpustrap drift."""

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
        "drift",
        epilog=examples("gpustrap drift", "gpustrap drift n1 rack2", "gpustrap drift --format json"),
    )(drift)


def drift(
    *,
    nodes: NodesArgument = None,
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
    """Find what is no longer as the last apply left it. One round trip; changes nothing.

    Exit codes: 0 in sync, 10 drifted, 13 cannot be told (never applied, or the last apply did not finish),
    4 unreachable.
    """
    from gpustrap.cli.local import choose_local
    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.drift import drift as find_drift
    from gpustrap.exitcodes import worst
    from gpustrap.model.site import Site
    from gpustrap.report.drift_text import render

    secrets = read_secrets(
        password_fd=password_fd,
        become_password_fd=become_password_fd,
        ask_password=ask_password,
        ask_become=ask_become,
    )
    place = Site(site.resolve())
    if local:
        nodes, secrets = choose_local(place, secrets, nodes, limit)
    with progress("Looking for drift") as say:
        found = find_drift(place, patterns=nodes, limit=limit, secrets=secrets, forks=forks, progress=say)
    code = worst(node.exit_code for node in found)
    emit({"nodes": [n.as_data() for n in found], "exit_code": int(code)}, render(found), form)
    show_problems(p for node in found for p in node.problems)
    raise typer.Exit(int(code))
