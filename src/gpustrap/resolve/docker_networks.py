"""Docker's networks: what was asked for, or some that collide with nothing the node can reach."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

from gpustrap.errors import Problem
from gpustrap.model.lock import Choice
from gpustrap.resolve.parts import Inputs
from gpustrap.resolve.pools import first_free, parse_pool, size_of, used_networks

Pools = tuple[list[dict[str, Any]], list[Choice], list[Problem]]


def address_pools(inputs: Inputs) -> Pools:
    """Pools, the choice and what is wrong with those asked for."""
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
