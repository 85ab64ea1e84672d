"""Addresses and routes of the node, without those of docker's own bridges."""

from __future__ import annotations

import json
import re
import socket
import struct

from .host import Host

# A network docker made is no reason to keep docker from using it again.
DOCKER = re.compile(r"^(docker\d+|docker_gwbridge|br-[0-9a-f]{12}|veth[0-9a-f]+)$")
ROUTES = ("unicast", "")
PROC_ROUTE = re.compile(r"^(\S+)\t([0-9A-F]{8})(?:\t\w+\s*){5}\t([0-9A-F]{8})\t", re.MULTILINE)


def network_facts(host: Host) -> dict[str, object]:
    """From ``ip -j``, of all tables (a VPN keeps its routes in its own); without it, from /proc/net."""
    addresses = host.run(["ip", "-j", "address", "show"])
    routes = [host.run(["ip", "-j", family, "route", "show", "table", "all"]) for family in ("-4", "-6")]
    try:
        found = parse_addresses(addresses.stdout if addresses and addresses.rc == 0 else "no answer")
        reached = [cidr for r in routes if r and r.rc == 0 for cidr in parse_routes(r.stdout)]
    except (ValueError, AttributeError, TypeError, KeyError):
        reached = parse_proc_route(host.read("/proc/net/route") or "")
        found = parse_fib_trie(host.read("/proc/net/fib_trie") or "")
    return {"addresses": sorted(set(found)), "routes": sorted(set(reached))}


def parse_addresses(text: str) -> list[str]:
    """CIDR of every address that is not of the machine alone, from ``ip -j address``."""
    return [
        "%s/%s" % (address["local"], address["prefixlen"])
        for link in json.loads(text or "[]")
        if not DOCKER.match(link.get("ifname", ""))
        for address in link.get("addr_info", [])
        if address.get("scope") not in ("host", "link") and "local" in address
    ]


def parse_routes(text: str) -> list[str]:
    """CIDR of every destination from ``ip -j route``, without default, local, multicast and link-local ones."""
    found = []
    for route in json.loads(text or "[]"):
        destination = str(route.get("dst", ""))
        if route.get("type", "") not in ROUTES or DOCKER.match(str(route.get("dev", ""))):
            continue
        if destination in ("", "default") or destination.startswith(("fe80:", "ff00:")):
            continue
        alone = "/128" if ":" in destination else "/32"
        found.append(destination if "/" in destination else destination + alone)
    return found


def parse_proc_route(text: str) -> list[str]:
    """CIDR of every IPv4 destination but the default, from /proc/net/route (hexadecimal, little endian)."""
    found = []
    for name, destination, mask in PROC_ROUTE.findall(text):
        if not DOCKER.match(name) and mask != "00000000":
            address = socket.inet_ntoa(struct.pack("<I", int(destination, 16)))
            found.append("%s/%d" % (address, bin(int(mask, 16)).count("1")))
    return found


def parse_fib_trie(text: str) -> list[str]:
    """Every local IPv4 address but loopback, as /32, from /proc/net/fib_trie."""
    found = re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", text)
    return [address + "/32" for address in found if not address.startswith("127.")]
