"""gpustrap plan."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from gpustrap.cli.output import Format, emit, say_next, show_problems, stderr, tell

if TYPE_CHECKING:
    from gpustrap.commands.plan import Planned
    from gpustrap.model.node import Secrets
    from gpustrap.model.site import Site

ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Tell the whole reasoning in sentences. Writes nothing.")
]
UpgradeOption = Annotated[
    bool, typer.Option("--upgrade", help="Take the newest versions instead of keeping the locked ones.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="COMPONENT",
        help="With --upgrade, move only this: conda, container-toolkit, cuda, docker, driver or environments. "
        "May be repeated.",
    ),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Write nothing; exit 3 if the lock would change.")]
FromFactsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from-facts",
        metavar="FILE",
        help="Plan recorded facts (gpustrap inspect --format json) and ask no node: files, directories, or - for "
        "standard input. Needs no site, writes nothing.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="With --from-facts, a gpustrap_* variable of every node."),
]


def add(app: typer.Typer) -> None:
    """Register the verb."""
    app.command(
        "plan",
        epilog=examples(
            "gpustrap plan",
            "gpustrap plan n1 --explain",
            "gpustrap plan --upgrade --only docker",
            "gpustrap plan --check (in CI)",
            "gpustrap plan --from-facts facts.json --set gpustrap_driver_branch=595",
        ),
    )(plan)


def plan(
    nodes: NodesArgument = None,
    *,
    site: SiteOption = Path(),
    limit: LimitOption = None,
    local: LocalOption = False,
    explain: ExplainOption = False,
    upgrade: UpgradeOption = False,
    only: OnlyOption = None,
    check: CheckOption = False,
    from_facts: FromFactsOption = None,
    settings: SettingsOption = None,
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
    from gpustrap.cli.local import choose_local
    from gpustrap.cli.secrets import read_secrets
    from gpustrap.commands.plan import components
    from gpustrap.commands.plan_offline import refuse_mixed
    from gpustrap.model.site import Site

    moving = components(upgrade, only or ())
    of_nodes = {"--limit": limit, "--local": local, "--upgrade": upgrade, "--check": check}
    refuse_mixed(bool(from_facts), [name for name, given in of_nodes.items() if given], settings or ())
    place = Site(site.resolve())
    if from_facts:
        planned = _recorded(place, from_facts, nodes, settings, named=site != Path())
    else:
        secrets = read_secrets(
            password_fd=password_fd,
            become_password_fd=become_password_fd,
            ask_password=ask_password,
            ask_become=ask_become,
        )
        if local:
            nodes, secrets = choose_local(place, secrets, nodes, limit)
        wanted = Wanted(nodes, limit, moving, check=check, write=not explain)
        planned = _asked(place, wanted, secrets, forks)
    _show(planned, form, explain=explain)
    _say_what_follows(planned, place, "gpustrap apply --local" if local else "gpustrap apply", quiet=check or explain)
    raise typer.Exit(int(planned.exit_code))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which nodes are planned, what may move, and whether anything is written."""

    nodes: list[str] | None
    limit: str | None
    moving: tuple[str, ...]
    check: bool
    write: bool


def _asked(place: Site, wanted: Wanted, secrets: Secrets, forks: int) -> Planned:
    """The plan of nodes that are asked now."""
    from gpustrap.cli.progress import progress
    from gpustrap.commands.plan import plan as plan_site

    with progress("Planning") as say:
        return plan_site(
            place,
            patterns=wanted.nodes,
            limit=wanted.limit,
            upgrade=wanted.moving,
            check=wanted.check,
            write=wanted.write,
            secrets=secrets,
            forks=forks,
            progress=say,
        )


def _recorded(
    place: Site, files: list[str], nodes: list[str] | None, settings: list[str] | None, *, named: bool
) -> Planned:
    """The plan of recorded facts; ``named``: the site was named, and not just the directory somebody stands in."""
    from gpustrap.commands.plan_offline import plan_from_facts
    from gpustrap.site.inventory import has_inventory

    return plan_from_facts(
        files,
        arguments=nodes or (),
        site=place if has_inventory(place) or named else None,
        settings=settings or (),
        stdin=sys.stdin.buffer,
    )


def _show(planned: Planned, form: Format, *, explain: bool) -> None:
    from gpustrap.report import explain_text, plan_json, plan_text

    problems = planned.problems
    if form is Format.JSON:
        data = plan_json.report(planned.plans, planned.changes, problems).model_dump(mode="json")
        emit(data, "", form)
    elif explain:  # it has the refusals of nodes, each where its reasons are
        emit(None, explain_text.render(planned.plans), form)
        told = {p for plan in planned.plans.values() for p in plan.problems}
        problems = tuple(p for p in problems if p not in told)
    else:
        complete = not problems and planned.lock is not None
        emit(None, plan_text.render(planned.plans, planned.changes, complete=complete), form)
    show_problems(problems)


def _say_what_follows(planned: Planned, place: Site, following: str, *, quiet: bool) -> None:
    if planned.note:
        tell(planned.note)
    if planned.written:
        stderr.print(f"wrote {place.lock.name}")
    elif planned.lock and not quiet and not planned.problems:
        stderr.print(f"{place.lock.name} is up to date")
    if planned.written and planned.changes:
        say_next(following)
