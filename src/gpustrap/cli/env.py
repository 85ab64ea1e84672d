"""``gpustrap env``: the environments of frameworks on nodes."""

from __future__ import annotations

import shlex
import subprocess
import sys
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
from gpustrap.cli.output import Format, emit, show_problems, stdout

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node of the inventory.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="An environment of its lock.")]

env_app = typer.Typer(
    help="Environments of frameworks on nodes: list them, open a shell in one, print what one is locked to.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.add_typer(env_app, name="env")


@env_app.command("list", epilog=examples("gpustrap env list", "gpustrap env list n1 rack2"))
def list_(
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
    """Show the environments of nodes: framework, version, when built, and whether each is as the lock wants it.

    One round trip to each node; nothing is changed or started there.
    Exit codes: 0 every node answered, 4 unreachable, 13 an answer could not be used.
    """
    from dataclasses import asdict

    from gpustrap.cli.local import choose_local
    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.environments import list_environments
    from gpustrap.model.site import Site
    from gpustrap.report.environments_text import render
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
    with progress("Asking for environments") as say:
        found = list_environments(place, chosen, secrets=secrets, forks=forks, progress=say)
    data = {
        "environments": [row.as_data() for row in found.rows],
        "problems": [{**asdict(p), "exit_code": int(p.exit_code)} for p in found.problems],
        "exit_code": int(found.exit_code),
    }
    emit(data, render(found.rows), form)
    show_problems(found.problems)
    raise typer.Exit(int(found.exit_code))


@env_app.command(epilog=examples("gpustrap env shell n1 torch"))
def shell(node: NodeArgument, name: NameArgument, *, site: SiteOption = Path()) -> None:
    """Open a shell on a node, with an environment active in it. Leaving it leaves the environment.

    Ends with the shell's own exit code. Without a terminal, the command is printed instead. On the node itself the same
    is: gpuenv NAME
    """
    from gpustrap.commands.environments import shell as open_shell
    from gpustrap.model.site import Site
    from gpustrap.site.inventory import load_nodes

    place = Site(site.resolve())
    (chosen,) = load_nodes(place, [node])
    with open_shell(place, chosen, name) as command:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            stdout.print(shlex.join(command))
            return
        code = subprocess.call(command)
    raise typer.Exit(code)


@env_app.command(epilog=examples("gpustrap env export n1 torch > requirements.txt"))
def export(node: NodeArgument, name: NameArgument, *, site: SiteOption = Path()) -> None:
    """Print what an environment is locked to: every package, its version and hashes, as uv and pip or conda read it.

    Read from the site; the node is not asked.
    """
    from gpustrap.commands.environments import export as read
    from gpustrap.model.site import Site

    stdout.file.write(read(Site(site.resolve()), node, name))
