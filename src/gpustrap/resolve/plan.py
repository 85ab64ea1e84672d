"""The plan of one node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gpustrap.catalog.schema import Catalog, Distro
from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Choice, NodeLock
from gpustrap.model.plan import NodePlan
from gpustrap.model.request import Request
from gpustrap.model.roles import ROLES, SITE_ORDER
from gpustrap.resolve.conda import plan_conda
from gpustrap.resolve.credentials import refuse_credentials
from gpustrap.resolve.digests import request_digest, system_digest
from gpustrap.resolve.docker import plan_docker
from gpustrap.resolve.gpu.plan import plan_gpu
from gpustrap.resolve.locked_versions import gone_versions, warn_gone
from gpustrap.resolve.parts import Inputs, Part
from gpustrap.resolve.server import plan_server

COMPONENTS = ("conda", "container-toolkit", "cuda", "docker", "driver", "environments")
MANAGERS: Mapping[str, str] = {"debian": "apt", "redhat": "dnf"}


def plan_node(
    name: str,
    facts: Facts,
    request: Request,
    catalog: Catalog,
    *,
    keep: NodeLock | None = None,
    upgrade: Collection[str] = (),
    offline: bool = False,
) -> NodePlan:
    """Decide everything about one node. Pure: the same input gives the same plan, byte for byte.

    Args:
        name: Inventory name, for the problems.
        facts: What the node is.
        request: What the user wants.
        catalog: What is known about the world.
        keep: The node's present entry in the lock: what still fits is taken from it, not the newest.
        upgrade: Which of `COMPONENTS` get their newest versions, whatever is in ``keep``.
        offline: There is no node to ask: versions that only its package manager knows stay open.

    Returns:
        The node's entry for the lock or every reason why there can be none, and what was noticed on the way.
    """
    distro = _distro(name, facts, catalog, offline)
    if isinstance(distro, Problem):
        return NodePlan(None, (distro,))
    digests = request_digest(request), system_digest(facts)
    kept = keep if keep and keep.system_digest == digests[1] else None
    same_request = kept is not None and kept.request_digest == digests[0]
    inputs = Inputs(name, facts, request, catalog, distro, kept, same_request, frozenset(upgrade), offline)
    parts = _parts(inputs)
    problems = (*refuse_credentials(inputs), *(p for part in parts.values() for p in part.problems))
    findings = tuple(f for part in parts.values() for f in part.findings)
    reasoning = tuple(r for part in parts.values() for r in part.reasoning)
    if problems:
        return NodePlan(None, problems, findings, reasoning)
    decided = {role: part.variables for role, part in parts.items() if part.variables is not None}
    here = [role for role in ROLES if role in decided] if distro.family == "debian" else []
    pending = [role for role in SITE_ORDER if role in decided and role not in here]
    repositories = {r.name: r for part in parts.values() for r in part.repositories}
    lock = NodeLock(
        request_digest=digests[0],
        system_digest=digests[1],
        os=_os(facts),
        choices=(_os_choice(facts, distro), *_choices(parts, pending)),
        roles={role: decided[role] for role in here},
        pending={role: decided[role] for role in pending},
        repositories=tuple(repositories[name] for name in sorted(repositories)),
    )
    gone = gone_versions(lock, facts)
    return NodePlan(lock, (), (*findings, *((warn_gone(name, lock, gone),) if gone else ())), reasoning)


def _choices(parts: Mapping[str, Part], pending: Collection[str]) -> Iterator[Choice]:
    for role, part in parts.items():
        for choice in part.choices:
            yield choice.model_copy(update={"pending": True}) if role in pending else choice


def _parts(inputs: Inputs) -> dict[str, Part]:
    """The parts of a plan, in the order in which they are shown."""
    request = inputs.request
    docker = plan_docker(inputs) if request.docker else Part()
    base = {"ubuntu_server": plan_server(inputs)} if inputs.distro.family == "debian" else {}
    parts = {**base, **plan_gpu(inputs, docker)}
    if request.docker:
        parts["docker"] = docker
    if request.conda:
        parts["conda"] = plan_conda(inputs)
    return parts


def _os(facts: Facts) -> str:
    system = facts.os
    codename = f" ({system.codename})" if system.codename else ""
    return f"{system.id} {system.version_id}{codename} {system.architecture}"


def _distro(name: str, facts: Facts, catalog: Catalog, offline: bool) -> Distro | Problem:
    """The node's distribution; or which of release, architecture and package manager is not what is supported."""

    def refused(code: str, message: str, evidence: str, remedy: str) -> Problem:
        return Problem(code, f"node {name}", message, ExitCode.REFUSED, evidence, remedy)

    found = catalog.distro(facts.os.id, facts.os.version_id)
    called = facts.os.pretty_name or _os(facts)
    architectures = catalog.server.architectures.names
    leave_out = "leave its facts out" if offline else f"leave it out: --limit '!{name}'"
    if found is None:
        known = f"supported: {', '.join(d.name for d in catalog.distros)}"
        return refused("unsupported-os", f"{called} is not supported", known, f"install one of these, or {leave_out}")
    if facts.os.architecture not in architectures:
        message = f"{called} is supported, but not on {facts.os.architecture}"
        return refused("unsupported-architecture", message, f"supported: {', '.join(sorted(architectures))}", leave_out)
    manager, seen = MANAGERS[found.family], facts.package_manager.kind
    if seen != manager:
        message = f"{called} is supported, but {manager}, its package manager, was not found on {name}"
        evidence = f"package_manager.kind: {seen}"
        remedy = f"on {name}: {manager} --version; facts from a file must say package_manager.kind: {manager}"
        return refused("package-manager-missing", message, evidence, remedy)
    return found


def _os_choice(facts: Facts, distro: Distro) -> Choice:
    return Choice(
        item="os",
        value=_os(facts),
        reason=f"{distro.name} is supported",
        source=distro.row,
        confidence=distro.confidence,
    )
