"""gpustrap report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from gpustrap.cli.options import (
    AskBecomeOption,
    AskPasswordOption,
    BecomePasswordFdOption,
    FormatOption,
    PasswordFdOption,
    SiteOption,
    examples,
)
from gpustrap.cli.output import Format, emit, stderr, stdout
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Secrets
from gpustrap.model.site import Site
from gpustrap.report.escape import visible

RunArgument = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="Id of a run, or the beginning of one; the last if left out.")
]
HtmlOption = Annotated[bool, typer.Option("--html", help="Print the path of the HTML report.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print the path of the Markdown report.")]
BundleOption = Annotated[
    str | None, typer.Option("--bundle", metavar="NODE", help="Make a redacted support archive about this node.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Where the archive goes.", show_default="gpustrap-NODE-TIME.tar.gz"),
]


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(
        "report",
        epilog=examples(
            "gpustrap report",
            "xdg-open $(gpustrap report --html)",
            "gpustrap report --bundle n1",
        ),
    )(report)


def report(
    run: RunArgument = None,
    *,
    site: SiteOption = Path(),
    html: HtmlOption = False,
    markdown: MarkdownOption = False,
    form: FormatOption = Format.TABLE,
    bundle: BundleOption = None,
    output: OutputOption = None,
    password_fd: PasswordFdOption = None,
    become_password_fd: BecomePasswordFdOption = None,
    ask_password: AskPasswordOption = False,
    ask_become: AskBecomeOption = False,
) -> None:
    """Show what the last run did, or make a support archive about a node.

    The archive holds facts, lock entry, ledger, the last runs and versions; passwords, tokens, keys and machine
    ids are taken out. It is listed before it is written; look through it before you pass it on.
    """
    from gpustrap.cli.secrets import read_secrets

    place = Site(site.resolve())
    if bundle is None:
        _show(place, run, html=html, markdown=markdown, form=form)
        return
    secrets = read_secrets(
        password_fd=password_fd,
        become_password_fd=become_password_fd,
        ask_password=ask_password,
        ask_become=ask_become,
    )
    _bundle(place, bundle, output, secrets)


def _show(site: Site, run: str | None, *, html: bool, markdown: bool, form: Format) -> None:
    from gpustrap.commands.report import find_run, report_file
    from gpustrap.report.run_report import HTML, MARKDOWN
    from gpustrap.report.run_text import render
    from gpustrap.report.view import view_run
    from gpustrap.site.lockfile import read_lock

    directory, summary = find_run(site, run)
    if html or markdown:
        names = [name for name, asked in ((HTML, html), (MARKDOWN, markdown)) if asked]
        for name in names:
            stdout.print(str(report_file(site, directory, summary, name)))
        return
    emit(summary.model_dump(mode="json"), render(view_run(summary, read_lock(site))), form)
    if form is Format.TABLE:
        path = report_file(site, directory, summary, HTML)
        stderr.print(f"Whole report: {path}")


def _bundle(site: Site, name: str, output: Path | None, secrets: Secrets) -> None:
    from gpustrap.cli.progress import progress
    from gpustrap.commands.report import make_bundle
    from gpustrap.site.inventory import load_nodes

    nodes = load_nodes(site, [name])
    if len(nodes) != 1:
        message = f"{name} names {len(nodes)} nodes; an archive is about one"
        raise GpustrapError(Problem("not-one-node", "option --bundle", message, ExitCode.USAGE))
    if output is None:
        output = Path(f"gpustrap-{nodes[0].name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.tar.gz")
    if output.exists() or output.is_symlink() or not output.parent.is_dir():  # before a node is troubled for it
        raise _not_written(name, output, "it exists already" if output.parent.is_dir() else "no such directory")
    with progress("Collecting") as say:
        made = make_bundle(site, nodes[0], secrets=secrets, progress=say)
    stderr.print("The archive holds, with secrets taken out:")
    for file, content in sorted(made.files.items()):
        stderr.print(f"  {len(content):9,}  {visible(file)}")
    try:
        made.write(output)
    except OSError as error:
        raise _not_written(name, output, str(error)) from error
    stdout.print(str(output))


def _not_written(name: str, output: Path, why: str) -> GpustrapError:
    message = f"{output} cannot be written"
    remedy = f"gpustrap report --bundle {name} -o another-file.tar.gz"
    return GpustrapError(Problem("bundle-not-written", "option --output", message, ExitCode.USAGE, why, remedy))
