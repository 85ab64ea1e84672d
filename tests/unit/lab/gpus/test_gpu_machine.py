"""Simulated machines: their data, their faults, and the tree that the real probe reads."""

import re
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host
from gpustrap.ansible_plugins.module_utils.gpustrap_node.nvidia import nvidia_facts
from gpustrap.ansible_plugins.module_utils.gpustrap_node.pci import bridge_facts, pci_facts
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus import state, sysfs
from gpustrap.lab.gpus.kernel_log import kernel_log
from gpustrap.lab.gpus.machine import Fault, GpuError, clear, inject


def probed(root):
    return pci_facts(Host(str(root)))


def test_profiles_of_the_issue_are_there():
    wanted = "1x-rtx3090 4x-rtx3090 2x-rtx4090 8x-h100-sxm 8x-b200 1x-t4 1x-gtx1080ti mixed-1080ti-5090 no-gpu"
    assert set(wanted.split()) <= set(gpus.profiles())


def test_every_row_names_its_source():
    for name in ("boards", "profiles"):
        for key, row in gpus.data(name).items():
            assert len(row["source"]) > 8, key


@pytest.mark.parametrize("profile", gpus.profiles())
def test_real_probe_reads_every_profile(tmp_path, profile):
    there = gpus.machine(profile, gpus.driver())
    sysfs.write(tmp_path, there)
    found = probed(tmp_path)
    shown = [one for one in found if one["pci_class"] != "0680"]
    assert len(shown) == len(there.gpus)
    by_address = {one["address"]: one for one in shown}
    for gpu in there.gpus:
        one, row = by_address[gpu.address], gpu.board.data
        assert (one["vendor"], one["device"]) == ("10de", row["device"])
        assert f"{one['subsystem_vendor']}:{one['subsystem_device']}" == row["subsystem"]
        assert one["pci_class"] == row["class"][:4]
        assert (one["link_width"], one["link_width_max"]) == (gpu.width, 16)
        assert sorted(one["bars"]) == sorted(size * 1024**2 for size in row["bars"].values())
        assert one["bars_unassigned"] == 0
        assert len(one["bridges"]) == (0 if profile == "1x-t4" else 3 if gpu.switch else 1)
    assert sorted(nvidia_facts(Host(str(tmp_path)))["bound"]) == sorted(gpu.address for _, gpu in there.bound())


def test_hgx_has_four_nvswitches_and_switches_without_acs_redirect(tmp_path):
    sysfs.write(tmp_path, gpus.machine("8x-h100-sxm", gpus.driver()))
    found = probed(tmp_path)
    assert [one["device"] for one in found if one["pci_class"] == "0680"] == ["22a3"] * 4
    bridges = bridge_facts(Host(str(tmp_path)), found)
    assert {one["acs_redirect"] for one in bridges} == {False}
    assert {one["numa_node"] for one in found if one["pci_class"] == "0302"} == {0, 1}


def test_a_machine_without_a_driver_has_devices_and_no_module(tmp_path):
    sysfs.write(tmp_path, gpus.machine("4x-rtx3090"))
    facts = nvidia_facts(Host(str(tmp_path)))
    assert len(probed(tmp_path)) == 4
    assert (facts["module"], facts["bound"]) == ("", [])


@pytest.mark.parametrize(("flavour", "bound"), [("open", ["rtx5090"]), ("proprietary", ["gtx1080ti"])])
def test_no_flavour_drives_the_mixed_machine(flavour, bound):
    there = gpus.machine("mixed-1080ti-5090", gpus.driver("580", flavour))
    assert [gpu.board.key for _, gpu in there.bound()] == bound


def test_faults_show_on_the_bus(tmp_path):
    there = gpus.machine("4x-rtx3090", gpus.driver())
    for fault in (Fault("narrow", 0), Fault("lost", 1), Fault("missing", 2), Fault("bars-unassigned", 3)):
        there = inject(there, fault)
    sysfs.write(tmp_path, there)
    first, lost, last = probed(tmp_path)
    assert first["link_width"] == 8
    assert (lost["link_width"], lost["link_speed"], lost["device"]) == (None, None, "2204")
    assert last["bars_unassigned"] == 2


def test_state_tells_of_its_machine():
    there = gpus.machine("8x-h100-sxm", gpus.driver("590"), seed="rack1/node2")
    for fault in (Fault("version-mismatch"), Fault("xid", 3, "48"), Fault("lost", 7), Fault("missing", 0)):
        there = inject(there, fault)
    assert state.parse(state.text(there)) == there
    bare = gpus.machine("1x-t4")
    assert state.parse(state.text(bare)) == bare


def test_state_is_simulated_and_made_of_plain_lines():
    words = state.text(gpus.machine("4x-rtx3090", gpus.driver()))
    assert "simulated=1\n" in words
    assert all(re.fullmatch(r"(\d+\.)?[a-z0-9_]+=[ -~]*", line) for line in words.splitlines())


def test_clear_takes_faults_away():
    healthy = gpus.machine("4x-rtx3090", gpus.driver())
    broken = inject(inject(healthy, Fault("hot", 1)), Fault("hot", 2, "91"))
    assert clear(broken) == clear(broken, "hot") == healthy
    assert clear(broken, gpu=1).faults == (Fault("hot", 2, "91"),)
    assert inject(broken, Fault("hot", 2, "70")).faults == (Fault("hot", 1), Fault("hot", 2, "70"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("ecc-uncorrected", 0), "GeForce RTX 3090 cannot have"),
        (Fault("mig", 0), "cannot have"),
        (Fault("remap-pending", 0), "cannot have"),
        (Fault("retired-pending", 0), "cannot have"),
        (Fault("lost", 4), "no GPU 4"),
        (Fault("lost"), "no fault lost of a machine"),
        (Fault("on-fire", 0), "no fault on-fire"),
    ],
)
def test_impossible_faults_are_refused(fault, words):
    with pytest.raises(GpuError, match=words):
        inject(gpus.machine("4x-rtx3090", gpus.driver()), fault)


def test_drivers_that_do_not_exist_are_refused():
    for branch, flavour in (("999", "open"), ("615", "proprietary"), ("580", "free")):
        with pytest.raises(GpuError):
            gpus.driver(branch, flavour)
    with pytest.raises(GpuError, match="no GPU profile 9x-tpu"):
        gpus.machine("9x-tpu")


def test_kernel_log_has_xids_in_the_form_that_verify_looks_for():
    there = inject(inject(gpus.machine("4x-rtx3090", gpus.driver()), Fault("xid", 0, "48")), Fault("lost", 2))
    there = inject(there, Fault("gsp-timeout", 1))
    words = "\n".join(kernel_log(there))
    codes = re.findall(r"^NVRM: Xid \(PCI:([\w:.]+)\): (\d+), ", words, re.MULTILINE)
    assert codes == [("0000:01:00", "48"), ("0000:41:00", "119"), ("0000:41:00", "154"), ("0000:81:00", "79")]
    assert f"NVRM: GPU at PCI:0000:41:00: {there.gpus[1].uuid}" in words.splitlines()
    assert words.count("NVRM: GPU at PCI:0000:41:00:") == 1


def test_kernel_log_tells_of_the_boot():
    first, second = kernel_log(gpus.machine("1x-t4", gpus.driver("580")))
    assert first.startswith("nvidia: loading out-of-tree module")
    assert second.startswith("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.178.04 ")
    assert kernel_log(gpus.machine("1x-t4")) == ()
    refused = kernel_log(gpus.machine("1x-gtx1080ti", gpus.driver("580")))[-1]
    assert "GPU 0000:01:00.0 (PCI ID: 10de:1b06)" in refused
    assert "not supported by the NVIDIA 580.178.04 driver" in refused


def test_data_is_independent_of_the_catalog():
    for path in Path(gpus.__file__).parent.rglob("*.py"):
        assert "gpustrap.catalog" not in path.read_text(encoding="utf-8")
