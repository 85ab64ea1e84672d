"""``gpustrap catalog``: what this gpustrap knows, and how well."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from gpustrap.cli.options import FormatOption, examples
from gpustrap.cli.output import Format, emit, show_problems, tell
from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode

MANY = 3  # cards; more GPUs are a table

catalog_app = typer.Typer(
    help="What is known about GPUs, drivers, CUDA and packages: each row with its source.",
    invoke_without_command=True,
    rich_markup_mode="rich",
)


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.add_typer(catalog_app, name="catalog")


@catalog_app.callback()
def _root(context: typer.Context) -> None:
    """What is known about GPUs, drivers, CUDA and packages: each row with its source."""
    if context.invoked_subcommand is None:
        show()


def _topics(incomplete: str) -> list[str]:
    from gpustrap.catalog.topics import TOPICS

    return [topic for topic in TOPICS if topic.startswith(incomplete)]


@catalog_app.command(
    epilog=examples(
        "gpustrap catalog show",
        "gpustrap catalog show drivers",
        "gpustrap catalog show packages ubuntu 580",
        "gpustrap catalog show RTX 3090",
        "gpustrap catalog show 10de:2204 --format json",
    )
)
def show(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC [WORD]... | GPU]",
            help="A topic, or its rows that have these words; a GPU by name, or by PCI id as lspci -nn has it (several "
            "for several GPUs); the topics if left out.",
            autocompletion=_topics,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the topics, the rows of one, or what is known of a GPU.

    Of a GPU that is not in the catalog, the range of its PCI id tells what it may be, with a warning.
    Exit codes: 0 shown, 2 no such name, 3 nothing can be said about this PCI id.
    """
    from dataclasses import asdict

    from gpustrap.catalog.loader import load_catalog
    from gpustrap.catalog.topics import TOPICS
    from gpustrap.commands import catalog as commands
    from gpustrap.commands.catalog_gpus import also
    from gpustrap.report import catalog_text as text

    catalog = load_catalog()
    first, *more = what or [""]
    if not first:
        files = commands.contents(catalog)
        emit([asdict(file) for file in files], text.contents_table(files), form)
    elif first in TOPICS:
        rows = commands.rows(catalog, first, more)
        emit(commands.whole_rows(catalog, first, more), text.topic_tables(rows), form)
    else:
        found = commands.find(catalog, " ".join([first, *more]))
        table = text.gpu_cards(found) if len(found) <= MANY else text.gpu_list(found)
        emit([known.data() for known in found], table, form)
        others = also(catalog, " ".join([first, *more]), [known.board for known in found])
        if others:
            tell(f"Also there: {', '.join(others)}")
        for words in (warning for known in found for warning in known.warnings):
            tell(f"Warning: {words}")


@catalog_app.command(epilog=examples("gpustrap catalog check", "gpustrap catalog check --older-than 90 --format json"))
def check(
    *,
    older_than: Annotated[
        int, typer.Option("--older-than", min=0, metavar="DAYS", help="Show rows checked longer ago than this.")
    ] = 180,
    form: FormatOption = Format.TABLE,
) -> None:
    """Check the installed catalog: its schema and references; show what is recalled and what is old.

    What is recalled was not all read at its source; a plan that rests on such a row says so.
    Exit codes: 0 sound, 1 broken.
    """
    from gpustrap.commands import catalog as commands
    from gpustrap.report.catalog_text import health_tables

    health = commands.check(datetime.now().astimezone().date(), older_than)
    code = ExitCode.INTERNAL if health.broken else ExitCode.OK
    emit({**health.data(), "exit_code": int(code)}, health_tables(health, older_than), form)
    remedy = "in the checkout of gpustrap: pip install --force-reinstall ."
    show_problems(Problem("catalog-broken", "catalog", fault, code, "", remedy) for fault in health.broken)
    if not health.broken:
        counts = f"{len(health.recalled)} recalled, {len(health.old)} older than {older_than} days"
        tell(f"{health.rows} rows, nothing broken; {counts}")
    raise typer.Exit(int(code))
