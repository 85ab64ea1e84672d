"""plan --from-facts: what would be decided for machines of which only the facts are here. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.commands.facts_files import read_facts_files
from gpustrap.commands.plan import Planned, decide
from gpustrap.commands.recorded import Recorded
from gpustrap.commands.settings import override, read_settings
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Node
from gpustrap.model.plan import NodePlan
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.site.inventory import load_nodes
from gpustrap.site.meant import closest


def plan_from_facts(
    sources: Sequence[str],
    *,
    arguments: Sequence[str] = (),
    site: Site | None = None,
    settings: Sequence[str] = (),
    stdin: BinaryIO,
) -> Planned:
    """Plan recorded facts: versions that only a node's package manager knows stay open.

    Args:
        sources: Files, directories, or ``-`` for standard input.
        arguments: Further files, as a shell's pattern gives them, and names of nodes that are wanted.
        site: Its inventory has the requests of the nodes it knows; the others', and all without a site, are defaults.
        settings: ``NAME=VALUE`` each, for every node, over its request.
        stdin: What ``-`` is.

    Raises:
        GpustrapError: A setting or the inventory is wrong, or no such node is there; broken files are in the result.
    """
    wishes = read_settings(settings)
    files = [a for a in arguments if a == "-" or Path(a).exists()]
    wanted = [a for a in arguments if a not in files]
    catalog = load_catalog()
    recorded, broken = read_facts_files([*sources, *files], stdin, catalog)
    unknown = [name for name in wanted if name not in recorded]
    if unknown:
        raise GpustrapError(*broken, *(_no_such_node(name, recorded) for name in unknown))
    nodes = _nodes(site) if site and recorded else {}
    plans = {
        name: _decide(name, facts, nodes.get(name), wishes, catalog)
        for name, facts in recorded.items()
        if not wanted or name in wanted
    }
    problems = (*broken, *(p for plan in plans.values() for p in plan.problems))
    return Planned(plans, (), problems, note=_whose_variables(plans, nodes) if site else "")


def _decide(name: str, recorded: Recorded, node: Node | None, wishes: Mapping[str, Any], catalog: Catalog) -> NodePlan:
    request = override(node.request if node else Request(), dict(wishes))
    decided = decide(name, recorded.facts, request, catalog, offline=True)
    return replace(decided, findings=(*(node.findings if node else ()), *recorded.findings, *decided.findings))


def _nodes(site: Site) -> dict[str, Node]:
    try:
        return {node.name: node for node in load_nodes(site)}
    except GpustrapError as error:
        if [p.code for p in error.problems] == ["no-hosts"]:  # an inventory that is still to be filled
            return {}
        raise


def _whose_variables(names: Collection[str], requests: Collection[str]) -> str:
    known, others = sum(n in requests for n in names), sum(n not in requests for n in names)
    parts = (f"the inventory's for {known}" if known else "", f"the defaults for {others}" if others else "")
    return f"Variables: {', '.join(filter(None, parts))}" if known else ""


def _no_such_node(name: str, recorded: Mapping[str, Any]) -> Problem:
    near = closest(name, recorded)
    return Problem(
        code="no-such-node",
        subject=name,
        message="is neither a file nor a node whose facts are here" + (f"; did you mean {near}?" if near else ""),
        exit_code=ExitCode.USAGE,
        remedy=f"use one of {', '.join(list(recorded)[:10])}" if recorded else "look at the names of the files",
    )


def refuse_mixed(from_facts: bool, of_nodes: Sequence[str], settings: Sequence[str]) -> None:
    """Recorded facts have no lock to keep or to compare with, and a lock holds what the inventory asks for.

    Args:
        from_facts: Whether the plan is about recorded facts.
        of_nodes: The options that were given and are about a site's nodes and lock.
        settings: The settings that were given.

    Raises:
        GpustrapError: An option stands beside one that it cannot go with.
    """
    problems = []
    if from_facts:
        message = "it is about a site's nodes and lock, which --from-facts does not look at"
        problems = [_mixed(name, message, f"leave {name} or --from-facts out") for name in of_nodes]
    elif settings:
        name = settings[0].partition("=")[0]
        message = "a variable of the site's own nodes is set in its inventory, so that apply finds it, too"
        problems = [_mixed(f"--set {name}", message, f"set {name} in inventory/group_vars/all.yml")]
    if problems:
        raise GpustrapError(*problems)


def _mixed(option: str, message: str, remedy: str) -> Problem:
    return Problem("options-do-not-mix", option, message, ExitCode.USAGE, remedy=remedy)
