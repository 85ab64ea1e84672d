"""gpustrap inspect."""

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
        "inspect",
        epilog=examples(
            "gpustrap inspect",
            "gpustrap inspect n1 rack2",
            "gpustrap inspect --format json > facts.json",
        ),
    )(inspect)


def inspect(
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
    """Show what nodes are: system, GPUs, disks, package manager, clock, what is installed, what needs attention.

    One round trip to each node; nothing is changed there, and a node that fails does not hide the others.
    Exit codes: 0 every node answered, 4 unreachable, 13 an answer could not be used.
    """
    from dataclasses import asdict

    from gpustrap.cli.local import choose_local
    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.inspect import inspect_nodes
    from gpustrap.model.attention import attention
    from gpustrap.model.site import Site
    from gpustrap.report.inspect_text import render
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
    with progress("Inspecting") as say:
        found = inspect_nodes(place, chosen, secrets=secrets, forks=forks, progress=say)
    data = {
        "nodes": [
            {"node": name, "facts": facts.model_dump(mode="json"), "attention": [asdict(a) for a in attention(facts)]}
            for name, facts in found.facts.items()
        ],
        "problems": [{**asdict(p), "exit_code": int(p.exit_code)} for p in found.problems],
        "exit_code": int(found.exit_code),
    }
    emit(data, render(found.facts), form)
    show_problems(found.problems)
    raise typer.Exit(int(found.exit_code))
