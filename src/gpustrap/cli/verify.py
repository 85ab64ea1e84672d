"""gpustrap verify."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpustrap.cli.options import (
    AskBecomeOption,
    AskPasswordOption,
    BecomePasswordFdOption,
    ForksOption,
    LimitOption,
    LocalOption,
    NodesArgument,
    PasswordFdOption,
    SiteOption,
    examples,
)
from gpustrap.cli.output import Format, emit, show_problems, stderr, stdout

if TYPE_CHECKING:
    from gpustrap.exitcodes import ExitCode
    from gpustrap.model.certificate import Fleet
    from gpustrap.model.site import Site


class Kind(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    PROMETHEUS = "prometheus"


class Thoroughness(StrEnum):
    """How much is checked; each has what those before it have."""

    QUICK = "quick"
    STANDARD = "standard"


LevelOption = Annotated[
    Thoroughness,
    typer.Option(
        "--level", help="quick: about a minute; standard: all memory, all copies, every framework's training, too."
    ),
]
KindOption = Annotated[
    Kind, typer.Option("--format", help="table for people; json, junit, markdown or prometheus for programs.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write the certificates there as well, in every format.")
]
AgainstOption = Annotated[
    Path | None,
    typer.Option("--against", metavar="FILE", help="Tell what got worse since these certificates (JSON)."),
]


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(
        "verify",
        epilog=examples(
            "gpustrap verify",
            "gpustrap verify n1 rack2",
            "gpustrap verify --level standard n1",
            "gpustrap verify --format junit >verify.xml",
            "gpustrap verify --against .gpustrap/certificates/fleet.json",
        ),
    )(verify)


def verify(
    nodes: NodesArgument = None,
    *,
    site: SiteOption = Path(),
    limit: LimitOption = None,
    local: LocalOption = False,
    level: LevelOption = Thoroughness.QUICK,
    form: KindOption = Kind.TABLE,
    out: OutOption = None,
    against: AgainstOption = None,
    forks: ForksOption = 20,
    password_fd: PasswordFdOption = None,
    become_password_fd: BecomePasswordFdOption = None,
    ask_password: AskPasswordOption = False,
    ask_become: AskBecomeOption = False,
) -> None:
    """Prove what nodes were given: run a container, make an environment, log in anew.

    The nodes are left as found. Nothing passes silently: a check that cannot run has failed.
    The certificates are in the site's .gpustrap/certificates: fleet.html is a page to look at.
    Exit codes: 0 all passed, 11 warnings or worse than before, 12 a check failed, 13 could not check, 4 unreachable.
    """
    from gpustrap.cli.local import choose_local
    from gpustrap.cli.progress import progress
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.certificates import certify_nodes, compare
    from gpustrap.exitcodes import worst
    from gpustrap.model.site import Site
    from gpustrap.site.certificates import read_certificates
    from gpustrap.site.inventory import load_nodes

    secrets = read_secrets(
        password_fd=password_fd,
        become_password_fd=become_password_fd,
        ask_password=ask_password,
        ask_become=ask_become,
    )
    place = Site(site.resolve())
    before = read_certificates(against) if against else {}
    if local:
        nodes, secrets = choose_local(place, secrets, nodes, limit)
    chosen = load_nodes(place, nodes, limit)
    with progress("Verifying") as say:
        fleet = certify_nodes(place, chosen, secrets=secrets, level=level.value, forks=forks, progress=say)
    if against:
        fleet = compare(fleet, str(against), before)
    _show(fleet, form)
    show_problems(fleet.problems)
    raise typer.Exit(int(worst([fleet.exit_code, *_write(place, fleet, out, tell=form is Kind.TABLE)])))


def _show(fleet: Fleet, form: Kind) -> None:
    """Print the result."""
    from rich.console import Group

    from gpustrap.model.check import NodeChecks
    from gpustrap.report import certificate_json, junit, markdown, prometheus
    from gpustrap.report.certificate_view import view_fleet
    from gpustrap.report.verify_text import render, render_changes

    if form in {Kind.TABLE, Kind.JSON}:
        table = render(NodeChecks(node=node.node, checks=node.checks) for node in fleet.nodes)
        table = Group(table, render_changes(fleet)) if fleet.against else table
        emit(certificate_json.data(fleet), table, Format(form.value))
        return
    if form is Kind.MARKDOWN:
        text = markdown.render_certificates(view_fleet(fleet))
    else:
        text = junit.render(fleet) if form is Kind.JUNIT else prometheus.render(fleet)
    stdout.file.write(text)
    stdout.file.flush()


def _write(site: Site, fleet: Fleet, out: Path | None, *, tell: bool) -> list[ExitCode]:
    """Write the certificates; the exit codes of what did not work, as the result is shown all the same."""
    from gpustrap.commands.certificates import OTHERS, OURS, write
    from gpustrap.errors import GpustrapError

    codes = []
    for directory, mode in ((site.certificates, OURS), (out, OTHERS)):
        try:
            if directory is not None:
                write(fleet, directory, mode=mode)
        except GpustrapError as error:
            show_problems(error.problems)
            codes.append(error.exit_code)
    if tell and not codes:
        stderr.print(f"Certificates: {(out or site.certificates) / 'fleet.html'}")
    return codes
