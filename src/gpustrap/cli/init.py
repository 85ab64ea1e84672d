"""gpustrap init."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from gpustrap.cli.options import FIRST_CONTACT, examples
from gpustrap.cli.output import stdout


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(
        "init",
        epilog=examples(
            "gpustrap init my-site",
            "gpustrap init my-site --host n1=192.0.2.11 --user ubuntu",
        ),
    )(init)


def init(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="The site's directory; made where missing.", show_default="this directory"
        ),
    ] = Path(),
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="NAME=ADDRESS", help="A node; repeat for more.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="The login on all nodes.")] = None,
) -> None:
    """Make a site: an inventory, every variable with its default, and what git must ignore.

    No existing file is changed, so it also completes a site. Git is not needed.
    """
    from gpustrap.commands.init import init as make

    created = make(directory, host or [], user)
    for name in created.written:
        stdout.print(f"made {directory / name}")
    for name in created.kept:
        stdout.print(f"kept {directory / name}")
    stdout.print("\nNext:")
    if directory.resolve() != Path.cwd():
        stdout.print(f"  cd {shlex.quote(str(directory))}")
    bare = not host and "inventory/hosts.yml" in created.written
    if bare:
        stdout.print("  add your machines to inventory/hosts.yml")
    for line in (FIRST_CONTACT, "gpustrap plan", "gpustrap apply"):
        stdout.print(f"  {line}")
    if bare:
        stdout.print("Or, for this machine itself:")
        for line in ("gpustrap plan --local", "gpustrap apply --local"):
            stdout.print(f"  {line}")
