"""The plan for people who run Ansible themselves: what the action and the filter ``gpustrap_plan`` are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpustrap.catalog.loader import load_catalog
from gpustrap.commands.inspect import validate
from gpustrap.commands.plan import decide
from gpustrap.errors import GpustrapError, Problem
from gpustrap.model.plan import Finding, NodePlan
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.report.escape import visible
from gpustrap.resolve.environments.left_out import items, leave_out, not_locked
from gpustrap.site.inventory import ROLE_PREFIXES, check_request, read_request
from gpustrap.site.meant import PREFIX
from gpustrap.site.wrong import explain, from_failure

# What the playbook itself is told; no wish about a node.
OF_PLAYBOOK = ("gpustrap_roles", "gpustrap_serial", "gpustrap_mok_password")
FAILURE = {"kind": "", "node": "", "where": "", "name": "", "message": ""}


def relevant(variables: Mapping[str, Any], inventory: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a node that a plan has to look at.

    Args:
        variables: As a task sees them; these hold the roles' defaults, too.
        inventory: As the inventory has them. Variables of roles are looked for only here, and only to refuse them.
            Where ``gpustrap_roles`` is there, they are those of an earlier plan.
    """
    found = {n: v for n, v in variables.items() if n.startswith(PREFIX) and n not in OF_PLAYBOOK}
    planned = "gpustrap_roles" in inventory
    return found | {n: v for n, v in inventory.items() if n.startswith(ROLE_PREFIXES) and not planned}


def wish(
    name: str,
    values: Mapping[str, Any],
    *,
    origins: Mapping[str, str] | None = None,
    failures: Sequence[dict[str, str]] = (),
    root: Path,
) -> Request:
    """The request of a node, refused in the words that the wrapper has for an inventory.

    Args:
        name: Inventory name.
        values: Its ``gpustrap_*`` variables; Ansible's own kinds of text are welcome.
        origins: Where each was set.
        failures: What could not be worked out before.
        root: Paths are named from here.

    Raises:
        GpustrapError: With everything that is wrong with it.
    """
    plain = json.loads(json.dumps(dict(values), default=str))
    findings = [from_failure(f) for f in failures] + check_request(name, plain, origins or {})
    problems = explain(findings, Site(root), names=())
    if problems:
        raise GpustrapError(*problems)
    return read_request(plain)


def questions(request: Request) -> list[str]:
    """The packages a node is asked about, as ``gpustrap plan`` asks."""
    return sorted({*load_catalog().packages(), *request.packages})


def plan_recorded(
    name: str, recorded: object, values: Mapping[str, Any], *, offline: bool, root: Path
) -> dict[str, Any]:
    """The plan of facts that are already there; whatever is wrong with them or the request is a problem of it.

    Args:
        name: How problems call the node.
        recorded: Its facts.
        values: ``gpustrap_*`` variables, and no others.
        offline: Versions that only the node's package manager knows stay open.
        root: Paths are named from here.
    """
    strange = [{"kind": "unknown-variable", "name": str(v)} for v in values if not str(v).startswith(PREFIX)]
    try:
        request = wish(name, values, failures=[FAILURE | {"node": name} | s for s in strange], root=root)
        facts = validate(name, json.loads(json.dumps(recorded, default=str)))
        if isinstance(facts, GpustrapError):
            raise facts
    except GpustrapError as error:
        return as_data(NodePlan(None, error.problems))
    return as_data(with_lock_files(decide(name, facts, request, load_catalog(), offline=offline)))


def with_lock_files(plan: NodePlan) -> NodePlan:
    """A plan with only the environments that have a lock file: one that was made on the way has none."""
    names = [item["name"] for item in items(plan.lock) if not item["digest"]] if plan.lock else []
    message = "it is not built: without a lock nothing says which versions of its packages"
    evidence, advice = "no gpustrap.lock.yml among the inventories", "gpustrap plan, then give Ansible the lock, too"
    return leave_out(plan, {name: not_locked(name, message, evidence=evidence, advice=advice) for name in names})


def as_data(plan: NodePlan) -> dict[str, Any]:
    """A plan as Ansible's variables hold it."""
    lock = plan.lock.model_dump(mode="json") if plan.lock else {}
    return {
        "roles": lock.get("roles", {}),
        "pending": lock.get("pending", {}),
        "choices": lock.get("choices", []),
        "problems": [{**asdict(p), "exit_code": int(p.exit_code)} for p in plan.problems],
        "findings": [finding.model_dump(mode="json") for finding in plan.findings],
    }


def variables(plan: NodePlan) -> dict[str, Any]:
    """What the inventory plugin gives a node of the lock: which roles, and their variables."""
    roles = as_data(plan)["roles"]
    return {"gpustrap_roles": list(roles)} | {k: v for of_role in roles.values() for k, v in of_role.items()}


def in_words(problems: Sequence[Problem]) -> str:
    """Problems as the wrapper says them on a terminal, without colours."""
    return "\n".join(line for problem in problems for line in _lines(problem))


def _lines(problem: Problem) -> list[str]:
    evidence = visible(problem.evidence).strip().splitlines()[:20]
    lines = [f"{visible(problem.subject)}: {visible(problem.message)}", *(f"    | {line}" for line in evidence)]
    return [*lines, f"    Next: {visible(problem.remedy)}", f"    ({problem.code})"]


def finding_in_words(name: str, finding: Finding) -> str:
    """A finding in one paragraph."""
    about = f"node {name}, {finding.subject}" if finding.subject else f"node {name}"
    parts = [f"{about}: {finding.message} ({finding.code})", finding.evidence, finding.advice]
    return ". ".join(visible(part) for part in parts if part)
