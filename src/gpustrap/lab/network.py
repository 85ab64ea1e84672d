"""The lab's private bridge: a subnet no route of this machine overlaps, fixed addresses, names through DNS."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import socket
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from gpustrap.lab import state
from gpustrap.lab.engine import LABEL_LAB, Engine, EngineError, refusal

# 10.128.0.0/10 is far from the 172.16/12 and 192.168/16 that docker, home routers and libvirt take.
POOL = ipaddress.IPv4Network("10.128.0.0/10")
MIRROR = 2  # host part of the mirror's address
FIRST_NODE = 10


def candidates(lab: str) -> Iterator[ipaddress.IPv4Network]:
    """Subnets to try, starting at one that follows from the lab's name, so that it mostly stays the same."""
    count = 2 ** (24 - POOL.prefixlen)
    start = int.from_bytes(hashlib.sha256(lab.encode()).digest()[:4]) % count
    base = int(POOL.network_address)
    for step in range(64):
        yield ipaddress.IPv4Network((base + ((start + step * 257) % count) * 256, 24))


def free_subnets(lab: str, taken: Iterable[ipaddress.IPv4Network]) -> Iterator[ipaddress.IPv4Network]:
    """The candidates that overlap nothing taken."""
    used = tuple(taken)
    return (subnet for subnet in candidates(lab) if not any(subnet.overlaps(other) for other in used))


def host_networks() -> tuple[ipaddress.IPv4Network, ...]:
    """Networks this machine has routes to, besides the default route, and its name servers."""
    done = subprocess.run(("ip", "-json", "-4", "route", "show", "table", "all"), capture_output=True, check=False)
    routes = [route.get("dst", "") for route in json.loads(done.stdout or "[]")]
    words = [line.split() for line in Path("/etc/resolv.conf").read_text(encoding="utf-8").splitlines()]
    servers = [word[1] for word in words if len(word) > 1 and word[0] == "nameserver" and ":" not in word[1]]
    networks = (ipaddress.IPv4Network(text, strict=False) for text in (*routes, *servers) if text != "default")
    return tuple(network for network in networks if network.prefixlen > 0)


def name(lab: str) -> str:
    """The bridge's name for the engine."""
    return f"gpustrap-{lab}"


def ensure(engine: Engine, lab: str) -> ipaddress.IPv4Network:
    """Make the lab's bridge unless it exists, and give its subnet.

    Raises:
        GpustrapError: The engine makes none.
    """
    known = find(engine, lab)
    if known is not None:
        return known
    words = "every candidate overlaps a route of this machine"
    for subnet in free_subnets(lab, host_networks()):
        try:
            engine.run("network", "create", f"--label={LABEL_LAB}={lab}", f"--subnet={subnet}", name(lab))
        except EngineError as error:  # another network of the engine has it: the next one
            words = error.words
        else:
            return subnet
    raise refusal("lab-network-failed", f"lab {lab}", "no private bridge could be made", evidence=words)


def find(engine: Engine, lab: str) -> ipaddress.IPv4Network | None:
    """The subnet of the lab's bridge, if it has one."""
    found = engine.list("network", f"name=^{name(lab)}$")
    return ipaddress.IPv4Network(found[0]["subnets"][0]["subnet"]) if found else None


def free_addresses(subnet: ipaddress.IPv4Network, taken: Collection[str], last: Path) -> Iterator[str]:
    """Addresses that no node has, in turn: one that a removed node had comes again only when all others were used.

    Until then neighbour tables still name the removed node's interface, and an engine under load may not have taken it
    off the bridge yet: connections to a new node of the same address time out.

    Args:
        subnet: The lab's.
        taken: What nodes have.
        last: A file with the address that was given last; written with each one.
    """
    hosts = [str(host) for host in subnet.hosts()][FIRST_NODE - 1 :]
    before = last.read_text(encoding="ascii").strip() if last.exists() else ""
    start = hosts.index(before) + 1 if before in hosts else 0
    for address in (*hosts[start:], *hosts[:start]):
        if address not in taken:
            state.write(last, address)
            yield address


def listens(address: str, port: int) -> bool:
    """Whether something answers there."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def mac(address: str) -> str:
    """The hardware address of a node, a locally administered one that holds its IPv4 address."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
