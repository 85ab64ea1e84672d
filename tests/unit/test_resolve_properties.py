"""What holds for every plan."""

from __future__ import annotations

import hashlib
from ipaddress import IPv4Network, ip_network
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.request import Request
from gpustrap.resolve.digests import request_digest, system_digest
from gpustrap.resolve.plan import COMPONENTS, plan_node
from gpustrap.site.lockfile import dump_lock

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PACKAGES = load_catalog().packages()
NETWORKS = st.builds(
    lambda bits, length: str(IPv4Network((bits >> (32 - length) << (32 - length), length))),
    st.sampled_from([0x0A000000, 0xAC100000, 0xC0A80000]).flatmap(lambda base: st.integers(base, base + 0xFFFFFF)),
    st.integers(9, 32),
)


def versions(seed: int) -> dict[str, str]:
    """A version of every package, another one for every seed."""
    return {name: f"{seed}.{number}-1" for number, name in enumerate(PACKAGES)}


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    distro = draw(st.sampled_from(load_catalog().distros))
    return Facts.model_validate(
        {
            "os": {
                "id": distro.id,
                "version_id": distro.version_id,
                "codename": distro.codename,
                "architecture": draw(st.sampled_from(["x86_64", "aarch64"])),
            },
            "kernel": {"running": "6.1"},
            "package_manager": {"kind": "apt", "candidates": versions(draw(st.integers(0, 99)))},
            "network": {
                "routes": draw(st.lists(NETWORKS, max_size=6)),
                "addresses": draw(st.lists(NETWORKS, max_size=3)),
            },
        }
    )


REQUESTS = st.builds(
    Request,
    docker_origin=st.sampled_from(["distribution", "upstream"]),
    docker=st.booleans(),
    conda=st.booleans(),
    time_sync=st.booleans(),
    docker_users=st.lists(st.sampled_from(["ann", "bob"]), max_size=2).map(tuple),
)


def text(node: NodeLock) -> str:
    return dump_lock(Lock(tool="t", catalog="c", nodes={"n1": node}))


def planned(system: Facts, request: Request, **more: Any) -> NodeLock | None:
    return plan_node("n1", system, request, load_catalog(), **more).lock


def with_packages(system: Facts, **change: dict[str, str]) -> Facts:
    manager = system.package_manager.model_copy(update=change)
    return system.model_copy(update={"package_manager": manager})


@FEW
@given(facts(), REQUESTS)
def test_the_same_input_gives_the_same_bytes(system: Facts, request: Request) -> None:
    again = Facts.model_validate_json(system.model_dump_json())
    first, second = planned(system, request), planned(again, Request.model_validate(request.model_dump()))
    assert (first is None) == (second is None)
    assert first is None or second is None or text(first) == text(second)


@FEW
@given(facts(), REQUESTS)
def test_docker_never_gets_a_network_that_the_node_uses(system: Facts, request: Request) -> None:
    node = planned(system, request)
    used = [ip_network(n, strict=False) for n in (*system.network.routes, *system.network.addresses)]
    for pool in node.roles.get("docker", {}).get("docker_address_pools", []) if node else []:
        assert not any(ip_network(pool["base"]).overlaps(n) for n in used)


@FEW
@given(facts(), REQUESTS, st.integers(0, 99))
def test_locked_choices_stay_until_upgrade(system: Facts, request: Request, seed: int) -> None:
    first = planned(system, request)
    if first is None:
        return
    newer = versions(seed)
    later = with_packages(system, candidates=newer)
    kept = planned(later, request, keep=first)
    assert kept is not None
    assert kept.roles == first.roles
    upgraded = planned(later, request, keep=first, upgrade=COMPONENTS)
    assert upgraded is not None
    for package in upgraded.roles.get("docker", {}).get("docker_packages", []):
        assert package["version"] == newer[package["name"]]


@FEW
@given(facts(), REQUESTS)
def test_planning_again_after_apply_changes_nothing(system: Facts, request: Request) -> None:
    first = planned(system, request)
    if first is None:
        return
    installed = {
        name: system.package_manager.candidates[name] for name in first.roles["ubuntu_server"]["ubuntu_server_packages"]
    }
    installed |= {p["name"]: p["version"] for p in first.roles.get("docker", {}).get("docker_packages", [])}
    again = planned(with_packages(system, packages=installed), request, keep=first)
    assert again is not None
    assert again.roles == first.roles


@FEW
@given(facts(), REQUESTS)
def test_another_system_keeps_nothing(system: Facts, request: Request) -> None:
    first = planned(system, request)
    moved = system.model_copy(
        update={
            "pci": Facts.model_validate(
                system.model_dump()
                | {"pci": [{"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300"}]}
            ).pci
        }
    )
    assert first is None or planned(moved, request, keep=first) == planned(moved, request)


def test_digests_cover_what_was_asked_and_nothing_that_moves() -> None:
    base = {"os": {"id": "debian", "version_id": "13", "architecture": "x86_64"}, "kernel": {"running": "6.1"}}
    one = Facts.model_validate(base)
    other = Facts.model_validate(base | {"kernel": {"running": "6.2"}, "boot_id": "x", "memory": {"available": 1}})
    gpu = {"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300", "driver": None}
    assert system_digest(one) == system_digest(other)
    with_gpu = Facts.model_validate(base | {"pci": [gpu]})
    assert system_digest(with_gpu) != system_digest(one)
    assert system_digest(with_gpu) == system_digest(Facts.model_validate(base | {"pci": [gpu | {"driver": "nvidia"}]}))
    assert request_digest(Request()) != request_digest(Request(docker_users=("ann",)))
    assert request_digest(Request()).startswith("sha256:")
    # What a variable that is still to come would do to every lock: nothing, where nobody sets it.
    assert request_digest(Request()) == f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    assert request_digest(Request(docker=True)) == request_digest(Request())
