"""The plan of one node."""

from __future__ import annotations

from gpustrap.catalog.schema import Catalog, Distro
from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Choice, NodeLock
from gpustrap.model.request import Request
from gpustrap.resolve.conda import plan_conda
from gpustrap.resolve.credentials import refuse_credentials
from gpustrap.resolve.digests import request_digest, system_digest
from gpustrap.resolve.docker import plan_docker
from gpustrap.resolve.parts import Inputs
from gpustrap.resolve.server import plan_server


def plan_node(
    name: str,
    facts: Facts,
    request: Request,
    catalog: Catalog,
    *,
    keep: NodeLock | None = None,
    upgrade: bool = False,
) -> NodeLock | tuple[Problem, ...]:
    """Decide everything about one node. Pure: the same input gives the same plan, byte for byte.

    Args:
        name: Inventory name, for the problems.
        facts: What the node is.
        request: What the user wants.
        catalog: What is known about the world.
        keep: The node's present entry in the lock: what still fits is taken from it, not the newest.
        upgrade: Take the newest versions, whatever is in ``keep``.

    Returns:
        The node's entry for the lock, or every reason why there can be none.
    """
    distro = _distro(name, facts, catalog)
    if isinstance(distro, Problem):
        return (distro,)
    digests = request_digest(request), system_digest(facts)
    kept = keep if keep and keep.system_digest == digests[1] else None
    same_request = kept is not None and kept.request_digest == digests[0]
    inputs = Inputs(name, facts, request, catalog, distro, kept, same_request, upgrade)
    parts = {"ubuntu_server": plan_server(inputs)}
    if request.docker:
        parts["docker"] = plan_docker(inputs)
    if request.conda:
        parts["conda"] = plan_conda(inputs)
    problems = (*refuse_credentials(inputs), *(p for part in parts.values() for p in part.problems))
    if problems:
        return problems
    return NodeLock(
        request_digest=digests[0],
        system_digest=digests[1],
        os=_os(facts),
        choices=(_os_choice(facts, distro), *(c for part in parts.values() for c in part.choices)),
        roles={role: part.variables or {} for role, part in parts.items()},
    )


def _os(facts: Facts) -> str:
    system = facts.os
    codename = f" ({system.codename})" if system.codename else ""
    return f"{system.id} {system.version_id}{codename} {system.architecture}"


def _distro(name: str, facts: Facts, catalog: Catalog) -> Distro | Problem:
    found = catalog.distro(facts.os.id, facts.os.version_id)
    architectures = catalog.server.architectures.names
    if found and facts.os.architecture in architectures and facts.package_manager.kind == "apt":
        return found
    supported = ", ".join(d.name for d in catalog.distros)
    return Problem(
        code="unsupported-os",
        subject=f"node {name}",
        message=f"{facts.os.pretty_name or _os(facts)} on {facts.os.architecture} is not supported",
        exit_code=ExitCode.REFUSED,
        evidence=f"supported: {supported}; on {', '.join(sorted(architectures))}",
        remedy=f"install one of these on {name}, or leave it out: --limit '!{name}'",
    )


def _os_choice(facts: Facts, distro: Distro) -> Choice:
    return Choice(
        item="os",
        value=_os(facts),
        reason=f"{distro.name} is supported",
        source=distro.row,
        confidence=distro.confidence,
    )
