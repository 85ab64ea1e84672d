"""Docker's packages: whose, and in which versions."""

from __future__ import annotations

from gpustrap.catalog.schema import DockerUpstream, Origin
from gpustrap.errors import Problem
from gpustrap.model.lock import Choice
from gpustrap.resolve.confidence import confidence
from gpustrap.resolve.parts import Inputs

ENGINE: dict[Origin, str] = {"distribution": "docker.io", "upstream": "docker-ce"}
# Versioned together with the engine.
SAME_VERSION = {"docker.io": ("docker.io", "docker-cli"), "docker-ce": ("docker-ce", "docker-ce-cli")}


def docker_origin(inputs: Inputs) -> Origin:
    """Whose packages: as asked for, where the distribution has any of its own."""
    return inputs.request.docker_origin if inputs.distro.docker_packages else "upstream"


def docker_upstream(inputs: Inputs) -> DockerUpstream:
    """Docker's own repository for the node's package manager."""
    docker = inputs.catalog.docker
    return docker.rpm if inputs.distro.family == "redhat" else docker.upstream


Packages = tuple[list[dict[str, str]], list[Choice], list[Problem]]


def docker_packages(inputs: Inputs) -> Packages:
    """Packages with versions, the choice, and why there can be none."""
    origin, upstream = docker_origin(inputs), docker_upstream(inputs)
    names = sorted(upstream.packages) if origin == "upstream" else list(inputs.distro.docker_packages)
    kept = _kept_versions(inputs)
    versions = {name: _version(inputs, name, kept) for name in names}
    missing = [name for name, version in versions.items() if not version]
    if missing and not inputs.offline:
        return [], [], [_unavailable(inputs, missing)]
    unknown = _unknown_versions(inputs, names)
    if unknown:
        return [], [], unknown
    engine = ENGINE[origin]
    source, unread = _source(inputs, engine, versions[engine], kept)
    archive = inputs.catalog.repository(inputs.distro.archive, inputs.facts.os.architecture)
    choice = Choice(
        item="docker",
        value=f"{engine} {versions[engine] or '(version open)'}",
        reason=_reason(inputs, engine, versions[engine], kept),
        source=source,
        confidence=confidence(upstream if origin == "upstream" else archive, unread=unread),
        simulated=inputs.request.simulated and origin == "upstream",
    )
    return [{"name": name, "version": version} for name, version in versions.items()], [choice], []


def _kept_versions(inputs: Inputs) -> dict[str, str]:
    if "docker" in inputs.upgrade or inputs.kept("docker", "docker_origin") != docker_origin(inputs):
        return {}
    return {p["name"]: p["version"] for p in inputs.kept("docker", "docker_packages")}


def _version(inputs: Inputs, name: str, kept: dict[str, str]) -> str:
    """The request's, else the locked, else the newest the node's apt knows, else the catalog's."""
    origin, wish = docker_origin(inputs), inputs.request.docker_version
    if wish and name in SAME_VERSION[ENGINE[origin]]:
        return wish
    newest = inputs.facts.package_manager.candidates.get(name, "")
    if origin == "upstream":
        newest = newest or inputs.distro.fill(docker_upstream(inputs).packages[name])
    return kept.get(name, newest)


def _reason(inputs: Inputs, engine: str, version: str, kept: dict[str, str]) -> str:
    newest = inputs.facts.package_manager.candidates.get(engine)
    whose = "docker's own repository" if engine == "docker-ce" else f"{inputs.distro.name}'s own docker"
    if inputs.request.docker_version:
        return f"gpustrap_docker_version asks for it; {whose}"
    if engine in kept and newest not in {None, version}:
        return f"locked; {newest} is available: gpustrap plan --upgrade takes it"
    if not version:
        return f"{whose}; its version is left open: only the node's package manager knows"
    if newest is None:
        return f"{whose}; the version the catalog knows, as the node does not know that repository yet"
    return f"{whose}; the newest the node's apt knows"


def _source(inputs: Inputs, engine: str, version: str, kept: dict[str, str]) -> tuple[str, bool]:
    """Where the version is from, and whether nobody read it for this distribution."""
    manager = inputs.facts.package_manager
    if inputs.request.docker_version:
        return "request", False
    if manager.candidates.get(engine) == version:
        return f"node: {manager.candidate_origins.get(engine) or 'apt-cache policy'}", False
    if engine in kept:
        return "lock", False
    if not version:
        return inputs.distro.row, inputs.distro.confidence == "recalled"
    row = "rpm" if inputs.distro.family == "redhat" else "upstream"
    return f"catalog: containers, docker {row}", inputs.distro.key not in docker_upstream(inputs).seen_on


def _unavailable(inputs: Inputs, names: list[str]) -> Problem:
    empty = not inputs.facts.package_manager.candidates
    why = "its package lists are empty" if empty else f"its sources do not have {' and '.join(names)}"
    message = f"apt on the node knows no version of {', '.join(names)}: {why}"
    remedy = f"on {inputs.name}: sudo apt-get update; then gpustrap plan {inputs.name}"
    evidence = "\n".join(n for n in inputs.facts.notes if "apt" in n)
    return inputs.problem("package-unavailable", message, remedy, evidence=evidence)


def _unknown_versions(inputs: Inputs, names: list[str]) -> list[Problem]:
    """A distribution carries one version: apt would find another only in the middle of an apply.

    Upstream keeps many, and the node may not know that repository yet.
    """
    wish, manager = inputs.request.docker_version, inputs.facts.package_manager
    if not wish or docker_origin(inputs) != "distribution" or inputs.offline:
        return []
    known = {n: (manager.packages.get(n), manager.candidates.get(n)) for n in names}
    without = [n for n in names if n in SAME_VERSION["docker.io"] and wish not in known[n]]
    if not without:
        return []
    if not manager.candidates:
        return [_unavailable(inputs, without)]
    message = f"gpustrap_docker_version is {wish}: apt on the node has no {' and no '.join(without)} of that version"
    there = (f"{n}: installed {known[n][0] or 'none'}, available {known[n][1] or 'none'}" for n in without)
    remedy = "leave gpustrap_docker_version out to take the node's, or set gpustrap_docker_origin: upstream"
    return [inputs.problem("version-unavailable", message, remedy, evidence="\n".join(there))]
