"""Whether a node is still what it was planned for."""

from __future__ import annotations

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock
from gpustrap.model.node import Node
from gpustrap.resolve.digests import request_digest, system_digest


def check_freshness(node: Node, facts: Facts, lock: Lock) -> Problem | None:
    """Why a node's entry in the lock must not be applied; None where it may.

    Args:
        node: The node as the inventory has it now.
        facts: What it is now.
        lock: The site's lock.
    """
    entry = lock.nodes.get(node.name)
    if entry is None:
        return _problem(node, "lock-missing", "is not in the lock: it was never planned")
    if entry.request_digest != request_digest(node.request):
        return _problem(node, "lock-stale", "its gpustrap_* variables changed since the plan")
    if entry.system_digest != system_digest(facts):
        message = "its hardware or operating system changed since the plan"
        return _problem(node, "lock-stale", message, f"planned for {entry.os}, with the PCI devices of that day")
    return None


def _problem(node: Node, code: str, message: str, evidence: str = "") -> Problem:
    return Problem(code, f"node {node.name}", message, ExitCode.REFUSED, evidence, f"gpustrap plan {node.name}")
