"""Options that mean the same in every verb."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpustrap.cli.output import Format
from gpustrap.report.next_step import SITE_VARIABLE, remember_site

# What anyone runs first, in every text that tells how to begin.
FIRST_CONTACT = "gpustrap enroll -k --accept-new --passwordless-sudo"


def examples(*lines: str, title: str = "Examples:") -> str:
    """An epilog with an example a line, as it can be copied."""
    return "\n".join((title, *lines))


SiteOption = Annotated[
    Path,
    typer.Option(
        "--site",
        envvar=SITE_VARIABLE,
        callback=remember_site,
        help="The site directory.",
        show_default="this directory",
    ),
]
LocalOption = Annotated[
    bool,
    typer.Option(
        "--local",
        help="This machine itself, without SSH: the node whose ansible_connection is local, or localhost where the "
        "site has no nodes.",
    ),
]
LimitOption = Annotated[
    str | None,
    typer.Option("--limit", "-l", help="Only these nodes: an Ansible host pattern, e.g. 'rack1:!n7'."),
]
NodesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NODE]...", help="Nodes or groups; all of the inventory if left out."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="table for people, json for programs.")]
ForksOption = Annotated[int, typer.Option("--forks", "-f", min=1, max=500, help="Nodes worked on at a time.")]
PasswordFdOption = Annotated[
    int | None,
    typer.Option("--password-fd", help="Read the SSH password from this open file descriptor (first line)."),
]
BecomePasswordFdOption = Annotated[
    int | None,
    typer.Option("--become-password-fd", help="Read the sudo password from this file descriptor (first line)."),
]
AskPasswordOption = Annotated[bool, typer.Option("--ask-password", "-k", help="Ask for the SSH password.")]
AskBecomeOption = Annotated[bool, typer.Option("--ask-become-pass", "-K", help="Ask for the sudo password.")]
