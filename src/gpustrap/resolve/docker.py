"""Docker: whose packages, in which versions, with which settings."""

from __future__ import annotations

from typing import Any

from gpustrap.catalog.schema import Origin
from gpustrap.errors import Problem
from gpustrap.model.lock import LockedRepository
from gpustrap.model.urls import without_credentials
from gpustrap.resolve.docker_networks import address_pools
from gpustrap.resolve.docker_packages import ENGINE, docker_origin, docker_packages, docker_upstream
from gpustrap.resolve.parts import Inputs, Part
from gpustrap.resolve.repository import locked


def plan_docker(inputs: Inputs) -> Part:
    """Decide the variables of role docker."""
    request, origin = inputs.request, docker_origin(inputs)
    packages, package_choice, package_problems = docker_packages(inputs)
    pools, pool_choice, pool_problems = address_pools(inputs)
    daemon = _daemon(inputs, pools)
    variables: dict[str, Any] = {
        "docker_origin": origin,
        "docker_packages": packages,
        "docker_conflicting_packages": list(inputs.catalog.docker.conflicts.of(origin)),
        "docker_daemon": daemon,
        "docker_address_pools": pools,
        "docker_users": list(request.docker_users),
        "docker_replace_snap": request.docker_replace_snap,
        "docker_proxy": inputs.proxy,
    }
    if origin == "upstream":
        variables |= _repository(inputs)
    problems = (*_in_the_way(inputs), *package_problems, *pool_problems, *_bad_daemon(inputs), *_bad_mirror(inputs))
    return Part((*package_choice, *pool_choice), variables, problems, repositories=_locked_repository(inputs))


def _in_the_way(inputs: Inputs) -> list[Problem]:
    """Other dockers on the node. Nothing is removed behind the user's back."""
    found = []
    installed = inputs.facts.package_manager.packages
    origin = docker_origin(inputs)
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
        other: Origin = "upstream" if origin == "distribution" else "distribution"
        keeps = f"set gpustrap_docker_origin: {other} to keep them, or " if ENGINE[other] in there else ""
        message = f"packages of another docker are installed, which {ENGINE[origin]} cannot stand beside"
        remedy = f"{keeps}on {inputs.name}: sudo apt-get remove {' '.join(there)}"
        evidence = "\n".join(f"{p} {installed[p]}" for p in there)
        found.append(inputs.problem("docker-conflict", message, remedy, evidence=evidence))
    return found


def _repository(inputs: Inputs) -> dict[str, Any]:
    upstream, request = docker_upstream(inputs), inputs.request
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
    upstream, request = docker_upstream(inputs), inputs.request
    if docker_origin(inputs) == "upstream":
        base = (request.docker_repository or upstream.repository).rstrip("/")
        fingerprints = request.docker_key_fingerprints or upstream.fingerprints
        uri = base + inputs.distro.fill(upstream.path)
        return (LockedRepository(name="docker", uri=uri, fingerprints=fingerprints, retention=upstream.retention),)
    archive = inputs.catalog.repository(inputs.distro.archive, inputs.facts.os.architecture)
    return (locked(inputs, archive),) if archive else ()


def _bad_mirror(inputs: Inputs) -> list[Problem]:
    url = inputs.request.docker_repository
    if not url or docker_origin(inputs) != "upstream" or url.startswith(("http://", "https://", "file:/")):
        return []
    message = f"gpustrap_docker_repository is {without_credentials(url)!r}: that is no URL"
    return [inputs.problem("bad-url", message, "write it as https://mirror/docker", usage=True)]


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
