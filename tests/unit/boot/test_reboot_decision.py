"""The decision about reboots, from facts that the probe reads below fake roots; named after what goes wrong."""

from __future__ import annotations

import pytest

from gpustrap.model.reboot import ANY, Need, Wanted, decide_driver, decide_kernel, decide_removal

OLD, NEW = "6.12.41+deb13-amd64", "6.12.48+deb13-amd64"
MOK = Wanted("595.91.07", mok=True)


def decided(tree, wanted=ANY):
    found = decide_driver(tree.facts(), wanted)
    return found.need, found.code


def test_nothing_is_to_be_done_where_all_three_agree(healthy):
    assert decided(healthy) == (Need.NONE, "driver-runs")
    assert decide_driver(healthy.facts(), Wanted("595.91.07")).loaded


def test_no_driver_is_no_reason(tree):
    tree.kernel(OLD, nouveau=True)
    assert decided(tree) == (Need.NONE, "driver-absent")
    assert not decide_driver(tree.facts()).loaded


def test_a_fresh_driver_needs_one_reboot(healthy):
    healthy.path("proc/driver/nvidia/version").unlink()
    healthy.gpu("nouveau")
    found = decide_driver(healthy.facts())
    assert (found.need, found.reason) == (Need.REBOOT, "nouveau drives the GPUs until the next boot")
    assert found.target == f"driver 595.91.07 open on kernel {OLD}, libraries 595.91.07"
    assert not found.loaded


def test_driver_lib_mismatch_after_an_upgrade_needs_one_reboot(healthy):
    healthy.loaded("580.95.05")
    found = decide_driver(healthy.facts())
    assert found.need is Need.REBOOT
    assert found.reason == "driver 580.95.05 is loaded, 595.91.07 is installed"
    assert found.evidence.splitlines() == [
        "loaded: 580.95.05 open",
        f"module on disk, kernel {OLD}: 595.91.07 open",
        "libraries: 595.91.07",
    ]


def test_driver_lib_mismatch_on_disk_is_not_mended_by_a_reboot(healthy):
    """Unattended-upgrades brought the libraries of 525, the module on disk is still 520."""
    healthy.module(OLD, "520.56.06")
    healthy.loaded("520.56.06")
    healthy.library("525.85.12")
    found = decide_driver(healthy.facts())
    assert (found.need, found.code) == (Need.USELESS, "driver-lib-mismatch")
    assert found.reason == "the module on disk is 520.56.06, the libraries are 525.85.12: a reboot changes neither"
    assert "gpustrap apply {node}" in found.remedy


def test_driver_lib_mismatch_of_a_module_without_libraries(healthy):
    for path in ("libnvidia-ml.so.1", "libnvidia-ml.so.595.91.07"):
        healthy.path(f"usr/lib/x86_64-linux-gnu/{path}").unlink()
    assert decided(healthy) == (Need.USELESS, "driver-lib-mismatch")


def test_libraries_that_are_not_the_locked_ones_are_a_matter_of_packages(healthy):
    assert decided(healthy, Wanted("580.95.05")) == (Need.USELESS, "driver-packages")


def test_another_flavour_of_the_same_version_needs_a_reboot(healthy):
    healthy.module(OLD, "595.91.07", "proprietary")
    found = decide_driver(healthy.facts())
    assert (found.need, found.reason) == (
        Need.REBOOT,
        "the open module is loaded, the proprietary one is installed",
    )


def test_kernel_moved_no_module_is_seen_before_the_reboot(healthy):
    healthy.kernel(NEW, headers=False, nouveau=True)
    found = decide_driver(healthy.facts())
    assert (found.need, found.code) == (Need.NEXT_BOOT, "kernel-moved-no-module")
    assert found.loaded
    assert NEW in found.reason
    assert found.next_step() == f"sudo apt-get install linux-headers-{NEW} && sudo dkms autoinstall -k {NEW}"


def test_a_command_of_the_node_says_where_it_is_meant(healthy):
    healthy.kernel(NEW, headers=False, nouveau=True)
    assert decide_driver(healthy.facts()).next_step("n1").startswith("on n1: sudo apt-get install linux-headers-")


def test_kernel_moved_no_module_makes_a_reboot_useless(healthy):
    healthy.kernel(NEW, nouveau=True)
    healthy.loaded("580.95.05")
    assert decided(healthy) == (Need.USELESS, "kernel-moved-no-module")


def test_kernel_moved_no_module_after_the_reboot(healthy):
    healthy.kernel(NEW, nouveau=True)
    healthy.running(NEW)
    healthy.path("proc/driver/nvidia/version").unlink()
    assert decided(healthy) == (Need.USELESS, "kernel-moved-no-module")


def test_the_module_of_the_kernel_that_boots_next_is_what_counts(healthy):
    """Prebuilt modules come for the newest kernel; the old one never gets any."""
    healthy.path(f"lib/modules/{OLD}/updates/dkms/nvidia.ko").unlink()
    healthy.path("proc/driver/nvidia/version").unlink()
    healthy.kernel(NEW)
    healthy.module(NEW, "595.91.07", path="kernel/nvidia-595/nvidia.ko")
    found = decide_driver(healthy.facts())
    assert found.need is Need.REBOOT
    assert f"on kernel {NEW}" in found.target


def test_a_module_of_another_kernel_would_not_load(healthy):
    healthy.module(OLD, "595.91.07", built_for="6.1.0-1-amd64")
    healthy.path("proc/driver/nvidia/version").unlink()
    assert decided(healthy) == (Need.USELESS, "module-of-other-kernel")


def test_nouveau_bound_with_a_stale_initramfs_would_bind_again(healthy):
    healthy.gpu("nouveau")
    healthy.blacklist(at=1_800_000_000)
    assert decided(healthy) == (Need.USELESS, "rival-driver")


@pytest.mark.parametrize(
    ("state", "wanted", "decision"),
    [
        ({}, MOK, (Need.PERSON, "secureboot-mok")),
        ({"requested": True}, ANY, (Need.PERSON, "secureboot-mok")),
        ({}, ANY, (Need.USELESS, "secureboot-mok")),
        ({"enrolled": True}, MOK, (Need.REBOOT, "driver-reboot")),
        ({"on": False}, MOK, (Need.REBOOT, "driver-reboot")),
    ],
    ids=["to enrol", "asked for", "nobody may be asked", "enrolled", "off"],
)
def test_secureboot_mok(healthy, state, wanted, decision):
    healthy.module(OLD, "595.91.07", signed=True)
    healthy.path("proc/driver/nvidia/version").unlink()
    healthy.secure_boot(**state)
    assert decided(healthy, wanted) == decision


def test_secureboot_mok_tells_what_to_do_at_which_console(healthy):
    healthy.module(OLD, "595.91.07", signed=True)
    healthy.path("proc/driver/nvidia/version").unlink()
    healthy.secure_boot()
    found = decide_driver(healthy.facts(), MOK)
    for words in ("BMC console of {node}", "Enroll MOK", "one-time password", "gpustrap apply {node}"):
        assert words in found.remedy


def test_secureboot_refuses_a_module_that_nobody_signed(healthy):
    healthy.path("proc/driver/nvidia/version").unlink()
    healthy.secure_boot()
    assert decided(healthy, MOK) == (Need.USELESS, "secureboot-unsigned")


def test_a_container_runs_its_hosts_module(tree):
    tree.text("run/.containerenv", "")
    tree.library("580.95.05")
    tree.loaded("580.95.05")
    assert decided(tree) == (Need.NONE, "driver-of-host")
    tree.library("595.91.07")
    assert decided(tree) == (Need.USELESS, "driver-lib-mismatch")


def test_missing_headers_are_a_reason_for_another_kernel_first(tree):
    tree.kernel(OLD, headers=False)
    tree.kernel(NEW)
    found = decide_kernel(tree.facts())
    assert (found.need, found.target) == (Need.REBOOT, f"kernel {NEW}")


def test_missing_headers_that_no_other_kernel_has_are_a_matter_of_packages(tree):
    tree.kernel(OLD, headers=False)
    assert decide_kernel(tree.facts()).need is Need.NONE
    tree.kernel(NEW, headers=False)
    assert decide_kernel(tree.facts()).need is Need.NONE


def test_a_kernel_with_headers_or_a_module_stays(tree):
    tree.kernel(OLD)
    tree.kernel(NEW)
    assert decide_kernel(tree.facts()).need is Need.NONE
    tree.kernel(OLD, headers=False)
    tree.path(f"lib/modules/{OLD}/build/Makefile").unlink()
    tree.module(OLD, "595.91.07")
    assert decide_kernel(tree.facts()).need is Need.NONE


def test_a_removed_driver_that_is_loaded_needs_one_reboot(healthy):
    assert decide_removal(healthy.facts()).code == "driver-stays"
    for module in healthy.root.glob("lib/modules/**/nvidia*.ko*"):
        module.unlink()
    found = decide_removal(healthy.facts())
    assert (found.need, found.code) == (Need.REBOOT, "removed-driver-loaded")
    assert found.target == f"no driver instead of 595.91.07, kernel {OLD}"
    healthy.path("proc/driver/nvidia/version").unlink()
    assert decide_removal(healthy.facts()).code == "driver-absent"
