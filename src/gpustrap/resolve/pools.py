"""Networks for docker that collide with nothing the node can reach."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, ip_network

# Private networks, the ones docker itself would take first. Each gives 256 or more networks of SIZE.
CANDIDATES = tuple(
    IPv4Network(n)
    for n in (
        "172.20.0.0/14",
        "172.24.0.0/14",
        "172.28.0.0/14",
        "192.168.128.0/17",
        "10.192.0.0/14",
        "10.128.0.0/14",
        "10.64.0.0/14",
        "10.240.0.0/14",
    )
)
SIZE = 24  # prefix length of each network taken from a pool: 254 containers


def used_networks(cidrs: Iterable[str]) -> tuple[IPv4Network, ...]:
    """The IPv4 networks among addresses and routes; the default route covers everything and says nothing."""
    found = set()
    for text in cidrs:
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            continue
        if isinstance(network, IPv4Network) and network.prefixlen > 0:
            found.add(network)
    return tuple(sorted(found))


def parse_pool(text: str) -> IPv4Network | str:
    """A network, or what is wrong with the text."""
    try:
        network = ip_network(text)
    except ValueError as error:
        return str(error)
    if not isinstance(network, IPv4Network):
        return f"{text} is not an IPv4 network"
    if not 8 <= network.prefixlen <= 28:
        return f"{text} must be between /8 and /28"
    return network


def size_of(pool: IPv4Network) -> int:
    """The prefix length of the networks taken from a pool: of a small pool, at least four networks."""
    return max(SIZE, min(pool.prefixlen + 2, 30))


def first_free(used: Iterable[IPv4Network]) -> IPv4Network | None:
    """The first candidate that overlaps nothing."""
    taken = tuple(used)
    return next((c for c in CANDIDATES if not any(c.overlaps(n) for n in taken)), None)
