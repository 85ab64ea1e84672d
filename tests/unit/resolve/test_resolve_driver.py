"""What stays of a driver when the lock, the node or the archive move."""

from __future__ import annotations

from typing import Any

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.request import Request
from gpustrap.resolve.plan import plan_node

KERNEL = "6.8.0-90-generic"
NEW, OLD = "595.91.07-0ubuntu0.24.04.1", "595.71.05-0ubuntu0.24.04.1"
FAMILY = ("libnvidia-compute-595-server", "nvidia-compute-utils-595-server", "nvidia-utils-595-server")
LEADING = "nvidia-headless-no-dkms-595-server-open"
MODULES = "linux-modules-nvidia-595-server-open-generic"
DESKTOP = "nvidia-driver-580-open"


def facts(installed: dict[str, str], candidates: dict[str, str]) -> Facts:
    return Facts.model_validate(
        {
            "os": {"id": "ubuntu", "version_id": "24.04", "codename": "noble", "architecture": "x86_64"},
            "kernel": {"running": KERNEL, "installed": [KERNEL], "headers": [KERNEL]},
            "pci": [{"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300"}],
            "package_manager": {
                "kind": "apt",
                "packages": installed,
                "candidates": {"docker.io": "28.2.2", **candidates},
            },
            "installs": [
                {"what": "nvidia-driver", "version": version, "origin": f"package {name}"}
                for name, version in installed.items()
            ],
        }
    )


def planned(node: Facts, keep: NodeLock | None = None, upgrade: tuple[str, ...] = (), **request: Any) -> NodeLock:
    wish = Request.model_validate({"environments": (), **request})
    plan = plan_node("n1", node, wish, load_catalog(), keep=keep, upgrade=upgrade)
    assert plan.lock, plan.problems
    return plan.lock


def driver(lock: NodeLock) -> dict[str, Any]:
    return lock.roles["nvidia_driver"]


def server(version: str) -> dict[str, str]:
    return {**dict.fromkeys((*FAMILY, LEADING), version), MODULES: "6.8.0-90.91"}


def test_upgrade_stays_on_the_branch_it_spoke_of() -> None:
    """The reason names the newer version of the locked branch: that is what the upgrade must bring."""
    first = planned(facts(server(OLD), server(OLD)))
    later = facts(server(OLD), server(NEW))
    kept = planned(later, first)
    reason = next(c.reason for c in kept.choices if c.item == "driver")
    assert (driver(kept)["nvidia_driver_package_version"], NEW in reason) == (OLD, True)
    upgraded = planned(later, first, upgrade=("driver",))
    assert driver(upgraded)["nvidia_driver_package_version"] == NEW
    assert driver(upgraded)["nvidia_driver_branch"] == "595"


def test_upgrade_moves_up_where_policy_has_a_newer_branch() -> None:
    fresh = facts({}, {**{n.replace("595", "580"): "580.1.1-0ubuntu1" for n in server("")}, **server(NEW)})
    first = planned(fresh)
    assert driver(first)["nvidia_driver_branch"] == "580"
    assert driver(planned(fresh, first, policy="latest"))["nvidia_driver_branch"] == "580"
    assert driver(planned(fresh, first, upgrade=("driver",), policy="latest"))["nvidia_driver_branch"] == "595"


def test_locked_packages_stay_when_the_nodes_own_move() -> None:
    """A desktop's driver that something upgraded behind our back: the lock still means the desktop's packages."""
    modules = {"linux-modules-nvidia-580-open-generic": "6.8.0-90.91"}
    before = planned(facts({DESKTOP: "580.95.05-0ubuntu0", **modules}, {}))
    after = planned(facts({DESKTOP: "580.126.09-0ubuntu0", **modules}, {}), before)
    assert driver(after) == driver(before)
    assert driver(after)["nvidia_driver_packages"] == [{"name": DESKTOP, "version": "580.95.05-0ubuntu0"}]


def test_kernel_packages_of_the_archive_change_no_lock() -> None:
    first = planned(facts({}, server(OLD) | {MODULES: "6.8.0-90.91"}), driver_branch="595")
    later = planned(facts({}, server(OLD) | {MODULES: "6.8.0-91.92"}), first, driver_branch="595")
    assert (later.roles, later.pending) == (first.roles, first.pending)


def test_what_was_passed_over_and_what_moves_is_said() -> None:
    node = facts(
        {"nvidia-dkms-580-server": "580.1.1-1", "nvidia-headless-no-dkms-580-server": "580.1.1-1"}, server(OLD)
    )
    plan = plan_node("n1", node, Request(driver_branch="595"), load_catalog())
    said = next(r.sentences for r in plan.reasoning if r.item == "driver")
    assert any("is on the node and does not stay: gpustrap_driver_branch is 595" in line for line in said)
    plan = plan_node("n1", facts({}, {}), Request(), load_catalog(), offline=True)
    said = next(r.sentences for r in plan.reasoning if r.item == "driver")
    assert any(
        line.startswith("Passed over: 610 open, 615 open: a new-feature branch") or "615 open" in line for line in said
    )


def test_a_version_that_nobody_read_is_recalled_in_the_second_plan_too() -> None:
    node = facts({}, {})
    first = plan_node("n1", node, Request(driver_version="580.105.08", driver_origin="nvidia"), load_catalog()).lock
    assert first
    second = planned(node, first, driver_version="580.105.08", driver_origin="nvidia")
    for lock in (first, second):
        assert next(c.confidence for c in lock.choices if c.item == "driver") == "recalled"
