"""Docker: whose packages, in which versions, with which settings."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any, Literal

from gpustrap.errors import Problem
from gpustrap.model.lock import Choice, LockedRepository
from gpustrap.model.urls import without_credentials
from gpustrap.resolve.gpu.repository import locked
from gpustrap.resolve.parts import Inputs, Part
from gpustrap.resolve.pools import first_free, parse_pool, size_of, used_networks

ENGINE = {"distribution": "docker.io", "upstream": "docker-ce"}
# Versioned together with the engine.
SAME_VERSION = {"docker.io": ("docker.io", "docker-cli"), "docker-ce": ("docker-ce", "docker-ce-cli")}


def plan_docker(inputs: Inputs) -> Part:
    """Decide the variables of role docker."""
    request = inputs.request
    packages, package_choice, package_problems = _packages(inputs)
    pools, pool_choice, pool_problems = _address_pools(inputs)
    daemon = _daemon(inputs, pools)
    variables: dict[str, Any] = {
        "docker_origin": request.docker_origin,
        "docker_packages": packages,
        "docker_conflicting_packages": list(inputs.catalog.docker.conflicts.of(request.docker_origin)),
        "docker_daemon": daemon,
        "docker_address_pools": pools,
        "docker_users": list(request.docker_users),
        "docker_replace_snap": request.docker_replace_snap,
        "docker_proxy": inputs.proxy,
    }
    if request.docker_origin == "upstream":
        variables |= _repository(inputs)
    problems = (*_in_the_way(inputs), *package_problems, *pool_problems, *_bad_daemon(inputs), *_bad_mirror(inputs))
    return Part((*package_choice, *pool_choice), variables, problems, repositories=_locked_repository(inputs))


def _in_the_way(inputs: Inputs) -> list[Problem]:
    """Other dockers on the node. Nothing is removed behind the user's back."""
    found = []
    installed = inputs.facts.package_manager.packages
    origin = inputs.request.docker_origin
    installs = inputs.facts.installs
    snap = any(i.what == "docker" and i.origin.startswith("snap") for i in installs)
    if snap and not inputs.request.docker_replace_snap:
        message = "docker is installed as a snap, which sees neither /etc/docker nor GPUs"
        remedy = "set gpustrap_docker_replace_snap: true (its containers and volumes go too), or gpustrap_docker: false"
        found.append(inputs.problem("docker-snap", message, remedy))
    if "podman-docker" in installed or any(i.what == "podman-docker" for i in installs):
        message = "podman-docker is installed: its docker command is podman, and no docker can stand beside it"
        remedy = f"on {inputs.name}: sudo apt-get remove podman-docker; or set gpustrap_docker: false"
        found.append(inputs.problem("podman-docker", message, remedy))
    conflicts = inputs.catalog.docker.conflicts.of(origin)
    there = [p for p in conflicts if p in installed and p != "podman-docker"]
    if there:
        other = "upstream" if origin == "distribution" else "distribution"
        keeps = f"set gpustrap_docker_origin: {other} to keep them, or " if ENGINE[other] in there else ""
        message = f"packages of another docker are installed, which {ENGINE[origin]} cannot stand beside"
        remedy = f"{keeps}on {inputs.name}: sudo apt-get remove {' '.join(there)}"
        evidence = "\n".join(f"{p} {installed[p]}" for p in there)
        found.append(inputs.problem("docker-conflict", message, remedy, evidence=evidence))
    return found


Packages = tuple[list[dict[str, str]], list[Choice], list[Problem]]


def _packages(inputs: Inputs) -> Packages:
    origin = inputs.request.docker_origin
    upstream = inputs.catalog.docker.upstream
    names = sorted(upstream.packages) if origin == "upstream" else list(inputs.distro.docker_packages)
    kept = _kept_versions(inputs)
    versions = {name: _version(inputs, name, kept) for name in names}
    missing = [name for name, version in versions.items() if not version]
    if missing:
        return [], [], [_unavailable(inputs, missing)]
    unknown = _unknown_versions(inputs, names)
    if unknown:
        return [], [], unknown
    engine = ENGINE[origin]
    source, confidence = _source(inputs, engine, versions[engine], kept)
    choice = Choice(
        item="docker",
        value=f"{engine} {versions[engine]}",
        reason=_reason(inputs, engine, versions[engine], kept),
        source=source,
        confidence=confidence,
        simulated=inputs.request.simulated and origin == "upstream",
    )
    return [{"name": name, "version": version} for name, version in versions.items()], [choice], []


def _kept_versions(inputs: Inputs) -> dict[str, str]:
    if "docker" in inputs.upgrade or inputs.kept("docker", "docker_origin") != inputs.request.docker_origin:
        return {}
    return {p["name"]: p["version"] for p in inputs.kept("docker", "docker_packages")}


def _version(inputs: Inputs, name: str, kept: dict[str, str]) -> str:
    """The request's, else the locked, else the newest the node's apt knows, else the catalog's."""
    origin, wish = inputs.request.docker_origin, inputs.request.docker_version
    if wish and name in SAME_VERSION[ENGINE[origin]]:
        return wish
    newest = inputs.facts.package_manager.candidates.get(name, "")
    if origin == "upstream":
        newest = newest or inputs.distro.fill(inputs.catalog.docker.upstream.packages[name])
    return kept.get(name, newest)


def _reason(inputs: Inputs, engine: str, version: str, kept: dict[str, str]) -> str:
    newest = inputs.facts.package_manager.candidates.get(engine)
    whose = "docker's own repository" if engine == "docker-ce" else f"{inputs.distro.name}'s own docker"
    if inputs.request.docker_version:
        return f"gpustrap_docker_version asks for it; {whose}"
    if engine in kept and newest not in {None, version}:
        return f"locked; {newest} is available: gpustrap plan --upgrade takes it"
    if newest is None:
        return f"{whose}; the version the catalog knows, as the node does not know that repository yet"
    return f"{whose}; the newest the node's apt knows"


def _source(
    inputs: Inputs, engine: str, version: str, kept: dict[str, str]
) -> tuple[str, Literal["verified", "recalled"]]:
    manager = inputs.facts.package_manager
    if inputs.request.docker_version:
        return "request", "verified"
    if manager.candidates.get(engine) == version:
        return f"node: {manager.candidate_origins.get(engine) or 'apt-cache policy'}", "verified"
    if engine in kept:
        return "lock", "verified"
    upstream = inputs.catalog.docker.upstream
    return "catalog: docker, upstream", "verified" if inputs.distro.key in upstream.seen_on else "recalled"


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
    if not wish or inputs.request.docker_origin != "distribution":
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


def _repository(inputs: Inputs) -> dict[str, Any]:
    upstream, request = inputs.catalog.docker.upstream, inputs.request
    base = (request.docker_repository or upstream.repository).rstrip("/")
    architecture = inputs.catalog.server.architectures.names[inputs.facts.os.architecture]
    return {
        "docker_repository": {
            "uri": base + inputs.distro.fill(upstream.path),
            "suite": inputs.distro.codename,
            "components": list(upstream.components),
            "architectures": [architecture],
        },
        "docker_key": {
            "url": base + inputs.distro.fill(upstream.key_path),
            "fingerprints": list(request.docker_key_fingerprints or upstream.fingerprints),
        },
    }


def _locked_repository(inputs: Inputs) -> tuple[LockedRepository, ...]:
    """Where the packages are from: docker's own repository or a mirror of it, or the distribution's archive."""
    upstream, request = inputs.catalog.docker.upstream, inputs.request
    if request.docker_origin == "upstream":
        base = (request.docker_repository or upstream.repository).rstrip("/")
        fingerprints = request.docker_key_fingerprints or upstream.fingerprints
        uri = base + inputs.distro.fill(upstream.path)
        return (LockedRepository(name="docker", uri=uri, fingerprints=fingerprints, retention=upstream.retention),)
    archive = inputs.catalog.repository(inputs.distro.archive, inputs.facts.os.architecture)
    return (locked(inputs, archive),) if archive else ()


def _bad_mirror(inputs: Inputs) -> list[Problem]:
    url = inputs.request.docker_repository
    if not url or inputs.request.docker_origin != "upstream" or url.startswith(("http://", "https://", "file:/")):
        return []
    message = f"gpustrap_docker_repository is {without_credentials(url)!r}: that is no URL"
    return [inputs.problem("bad-url", message, "write it as https://mirror/docker", usage=True)]


Pools = tuple[list[dict[str, Any]], list[Choice], list[Problem]]


def _address_pools(inputs: Inputs) -> Pools:
    network = inputs.facts.network
    used = used_networks((*network.addresses, *network.routes))
    if inputs.request.docker_address_pools:
        return _requested_pools(inputs, used)
    locked = [pool["base"] for pool in inputs.kept("docker", "docker_address_pools") or ()]
    kept = [n for n in map(parse_pool, locked) if isinstance(n, IPv4Network) and not any(n.overlaps(u) for u in used)]
    chosen = kept[0] if kept and len(kept) == len(locked) == 1 else first_free(used)
    if chosen is None:
        message = "every private network gpustrap would give docker overlaps a route or an address of the node"
        remedy = "name free networks in gpustrap_docker_address_pools"
        evidence = ", ".join(map(str, used[:20]))
        return [], [], [inputs.problem("no-free-address-pool", message, remedy, evidence=evidence)]
    return _pools(inputs, [chosen], "no route or address of the node overlaps it")


def _requested_pools(inputs: Inputs, used: tuple[IPv4Network, ...]) -> Pools:
    pools: list[IPv4Network] = []
    problems = []
    for text in inputs.request.docker_address_pools:
        pool = parse_pool(text)
        if isinstance(pool, str):
            message = f"gpustrap_docker_address_pools: {pool}"
            problems.append(inputs.problem("bad-address-pool", message, "write networks as 10.200.0.0/16", usage=True))
            continue
        over = [str(n) for n in (*used, *pools) if pool.overlaps(n)]
        if over:
            message = f"gpustrap_docker_address_pools: {pool} overlaps what the node uses: {', '.join(over[:5])}"
            remedy = "choose other networks, or leave gpustrap_docker_address_pools out"
            problems.append(inputs.problem("address-pool-overlap", message, remedy))
        pools.append(pool)
    if problems:
        return [], [], problems
    return _pools(inputs, pools, "gpustrap_docker_address_pools; no route or address of the node overlaps")


def _pools(inputs: Inputs, networks: list[IPv4Network], reason: str) -> Pools:
    pools = [{"base": str(n), "size": size_of(n)} for n in networks]
    value = ", ".join(str(n) for n in networks)
    used = (*inputs.facts.network.routes, *inputs.facts.network.addresses)
    source = f"node: {len(set(used))} routes and addresses"
    return pools, [Choice(item="docker-address-pools", value=value, reason=reason, source=source)], []


def _daemon(inputs: Inputs, pools: list[dict[str, Any]]) -> dict[str, Any]:
    """The keys to merge into daemon.json. The user's own log driver keeps its own options."""
    request = inputs.request
    daemon: dict[str, Any] = {"default-address-pools": pools}
    if not {"log-driver", "log-opts"} & request.docker_daemon.keys():
        daemon["log-driver"] = "json-file"
        daemon["log-opts"] = {"max-size": request.docker_log_max_size, "max-file": str(request.docker_log_max_file)}
    return dict(sorted((daemon | request.docker_daemon).items()))


def _bad_daemon(inputs: Inputs) -> list[Problem]:
    rules = {
        "default-address-pools": "use gpustrap_docker_address_pools, which is checked against the node's routes",
        "hosts": "the unit of docker sets its own; use a drop-in for docker.service instead",
    }
    return [
        inputs.problem("docker-daemon-key", f"gpustrap_docker_daemon must not hold {key!r}", remedy, usage=True)
        for key, remedy in rules.items()
        if key in inputs.request.docker_daemon
    ]
