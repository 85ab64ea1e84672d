"""Whether an apply may begin on a node: everything that would stop it half-way is refused now."""

from __future__ import annotations

from collections.abc import Sequence

from gpustrap.commands.apply_problems import roles_not_in_lock
from gpustrap.commands.controller import controller_problem
from gpustrap.commands.freshness import check_freshness
from gpustrap.converge.preflight import preflight
from gpustrap.errors import Problem
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock
from gpustrap.model.node import Node
from gpustrap.resolve.locked_versions import gone_versions, refuse_gone


def readiness(node: Node, facts: Facts, lock: Lock, tags: Sequence[str]) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """Refusals, and things only to be mentioned.

    Args:
        node: The node as the inventory has it now.
        facts: What it is now, and what its package manager knows of the locked packages.
        lock: The site's lock.
        tags: Only these roles; all when empty.
    """
    entry = lock.nodes.get(node.name)
    stale = check_freshness(node, facts, lock)
    found = [stale, controller_problem(node.name, facts)]
    if entry and not stale:
        found.append(roles_not_in_lock(node.name, tags, entry))
        gone = gone_versions(entry, facts, tags)
        found.append(refuse_gone(node.name, entry, gone) if gone else None)
    refused, notes = preflight(node.name, facts, entry)
    return (*(p for p in found if p), *refused), notes
