"""A plan without some of its environments: those that have no lock file cannot be built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpustrap.model.lock import Choice, NodeLock
from gpustrap.model.plan import Finding, NodePlan
from gpustrap.resolve.environments.target import ROLE

ITEMS = f"{ROLE}_environments"


def items(lock: NodeLock) -> tuple[dict[str, Any], ...]:
    """The environments of a node's entry."""
    return tuple((lock.roles.get(ROLE) or lock.pending.get(ROLE) or {}).get(ITEMS, ()))


def not_locked(name: str, message: str, *, evidence: str, advice: str) -> Finding:
    """What is said of an environment that has no lock file and that nobody asked for."""
    return Finding(
        code="environment-not-locked",
        severity="warning",
        subject=f"environment {name}",
        message=message,
        evidence=evidence,
        advice=advice,
    )


def leave_out(plan: NodePlan, why: Mapping[str, Finding]) -> NodePlan:
    """The plan without some environments, each with what is said of it; without the role where none is left.

    Args:
        plan: Of a node.
        why: Environment -> what is said of it.
    """
    if plan.lock is None or not why:
        return plan
    left = [item for item in items(plan.lock) if item["name"] not in why]
    choices = (_without(choice, why) for choice in plan.lock.choices)
    change = {
        "roles": _of_role(plan.lock.roles, left),
        "pending": _of_role(plan.lock.pending, left),
        "choices": tuple(choice for choice in choices if left or choice.item != "uv"),
    }
    findings = (*plan.findings, *why.values())
    return NodePlan(plan.lock.model_copy(update=change), plan.problems, findings, plan.reasoning)


def _of_role(roles: Mapping[str, dict[str, Any]], left: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    changed = {role: v | {ITEMS: left} if role == ROLE else v for role, v in roles.items()}
    return {role: v for role, v in changed.items() if role != ROLE or left}


def _without(choice: Choice, why: Mapping[str, Finding]) -> Choice:
    finding = why.get(choice.item.removeprefix("environment-")) if choice.item.startswith("environment-") else None
    return choice.model_copy(update={"value": "none", "reason": finding.message}) if finding else choice
