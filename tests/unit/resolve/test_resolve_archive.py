"""What an archive does not have is not planned from it; what was locked from it stays locked."""

from __future__ import annotations

from typing import Any

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.request import Request
from gpustrap.resolve.plan import plan_node

VERSION = "580.178.04-0ubuntu0.24.04.1"
LEADING = "nvidia-headless-no-dkms-580-server-open"
MODULES = "linux-modules-nvidia-580-server-open-generic"


def node(*known: str) -> Facts:
    return Facts.model_validate(
        {
            "os": {"id": "ubuntu", "version_id": "24.04", "codename": "noble", "architecture": "x86_64"},
            "kernel": {"running": "6.8.0-90-generic", "headers": ["6.8.0-90-generic"]},
            "pci": [{"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300"}],
            "package_manager": {"kind": "apt", "candidates": dict.fromkeys(("docker.io", MODULES, *known), VERSION)},
        }
    )


def driver(facts: Facts, keep: NodeLock | None = None, *, offline: bool = False) -> tuple[dict[str, Any], NodeLock]:
    request = Request(conda=False)
    plan = plan_node("n1", facts, request, load_catalog(), keep=keep, offline=offline)
    assert plan.lock, plan.problems
    return plan.lock.roles["nvidia_driver"], plan.lock


def test_what_apt_does_not_know_is_passed_over() -> None:
    assert driver(node(LEADING))[0]["nvidia_driver_origin"] == "distribution"
    assert driver(node())[0]["nvidia_driver_origin"] == "nvidia"


def test_facts_without_a_node_to_ask_leave_the_version_open() -> None:
    variables = driver(node(), offline=True)[0]
    assert (variables["nvidia_driver_origin"], variables["nvidia_driver_version"]) == ("distribution", "")


def test_what_is_locked_stays_when_the_archive_drops_it() -> None:
    before, lock = driver(node(LEADING))
    assert driver(node(), lock)[0] == before
