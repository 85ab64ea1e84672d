"""What the probe makes of PCI addresses, bridges, ACS and nvidia-smi, beyond the recorded machines."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import acs, apt, nvidia, pci, rpm, system
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Completed, Host

LOADED = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
SLOW = Completed(-9, "", "")


class Node(Host):
    """A tree whose nvidia-smi says what the test wants."""

    def __init__(self, root: Path, answer: Completed | None) -> None:
        super().__init__(str(root))
        self.answer = answer
        self.asked: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], timeout: float = 10.0) -> Completed | None:
        self.asked.append(tuple(argv))
        assert timeout == 20
        if self.answer is SLOW:
            self.note("nvidia-smi: no answer within 20 s")
            return None
        return self.answer


def node(root: Path, answer: Completed | None = None, *, module: str = LOADED, smi: bool = True) -> Node:
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(module)
    if smi:
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/nvidia-smi").touch()
    return Node(root, answer)


@pytest.mark.parametrize(
    ("answer", "nvml", "error"),
    [
        (Completed(0, "00000000:0A:00.0\n00000001:00:00.0\n", ""), ["0000:0a:00.0", "0001:00:00.0"], ""),
        (SLOW, None, "nvidia-smi gave no answer within 20 s"),
        (None, None, ""),
        (
            Completed(
                18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n", ""
            ),
            None,
            "Failed to initialize NVML: Driver/library version mismatch NVML library version: 580.95",
        ),
        (
            Completed(15, "Unable to determine the device handle for GPU0000:41:00.0: GPU is lost.\n", "noise"),
            None,
            "Unable to determine the device handle for GPU0000:41:00.0: GPU is lost.",
        ),
        (Completed(6, "No devices were found\n", ""), [], "No devices were found"),
        (
            Completed(14, "00000000:0A:00.0\nWARNING: infoROM is corrupted at gpu 0000:0A:00.0\n", ""),
            ["0000:0a:00.0"],
            "WARNING: infoROM is corrupted at gpu 0000:0A:00.0",
        ),
        (Completed(127, "", "libnvidia-ml.so.1: cannot open\n"), None, "libnvidia-ml.so.1: cannot open"),
        (Completed(9, "", ""), None, "nvidia-smi ended with 9"),
        (Completed(0, "", ""), [], ""),
    ],
)
def test_nvidia_smis_list_or_its_words(
    tmp_path: Path, answer: Completed | None, nvml: list[str] | None, error: str
) -> None:
    found = nvidia.nvidia_facts(node(tmp_path, answer))
    assert (found["nvml"], found["nvml_error"]) == (nvml, error)


@pytest.mark.parametrize(("module", "smi"), [("", True), (LOADED, False)])
def test_nvidia_smi_is_asked_only_where_it_can_answer(tmp_path: Path, module: str, smi: bool) -> None:
    there = node(tmp_path, Completed(0, "", ""), module=module, smi=smi)
    found = nvidia.nvidia_facts(there)
    assert there.asked == []
    assert (found["nvml"], found["nvml_error"]) == (None, "")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:01:00.0", "0000:01:00.0"),
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),  # behind Intel's VMD the domain has five digits
        ("01:00.0", ""),
        ("0000:01:00.0 ", ""),
        ("0000:01:00.8", ""),
        ("[GPU is lost]", ""),
    ],
)
def test_addresses_are_spelt_as_sysfs_does(text: str, address: str) -> None:
    assert pci.parse_address(text) == address


@pytest.mark.parametrize(
    ("said", "uuid"),
    [
        ("GPU-01234567-89ab-cdef-0123-456789abcdef", "GPU-01234567-89ab-cdef-0123-456789abcdef"),
        ("GPU-????????-????-????-????-????????????", ""),
        ("GPU-01234567-89ab-cdef-0123-456789abcdef; more", ""),
    ],
)
def test_uuids_of_gpus_are_those_the_driver_knows(tmp_path: Path, said: str, uuid: str) -> None:
    gpu = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    gpu.mkdir(parents=True)
    (gpu / "class").write_text("0x030200\n")
    proc = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    proc.mkdir(parents=True)
    (proc / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {said}\nVideo BIOS: \t 96.00\n")
    assert [device["uuid"] for device in pci.pci_facts(Host(str(tmp_path)))] == [uuid]


@pytest.mark.parametrize(
    ("target", "bridges"),
    [
        ("../../../devices/pci0000:00/0000:00:02.0", []),
        ("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0", ["0000:00:01.0"]),
        ("../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0", ["10000:e0:06.0"]),
        ("../../../devices/LNXSYSTM:00/LNXSYBUS:00/PNP0A03:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0", []),
        ("../../../devices/platform/a0000000.pcie/pci000f:00/000f:00:00.0/000f:01:00.0", ["000f:00:00.0"]),
        ("", []),
    ],
)
def test_bridges_above_a_device_are_those_below_its_root_bus(target: str, bridges: list[str]) -> None:
    assert pci.parse_bridges(target) == bridges


@pytest.mark.parametrize(
    ("control", "redirect"),
    [(0x00, False), (0x01, True), (0x04, True), (0x08, True), (0x1D, True), (0x40, False)],  # 0x40: Direct Translated
)
def test_acs_redirects_by_any_of_three_bits(control: int, redirect: bool) -> None:
    space = bytes(0x100) + bytes([0x0D, 0, 1, 0, 0x5F, 0, control, 0])
    assert acs.parse_redirect(lambda offset, size: space[offset : offset + size]) is redirect


def test_capabilities_that_lead_in_a_circle_end() -> None:
    space = bytes(0x100) + bytes([0x01, 0, 1, 0x10])
    assert acs.parse_redirect(lambda offset, size: space[offset : offset + size]) is None


def test_only_the_bytes_asked_for_are_read(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"0123456789")
    host = Host(str(tmp_path))
    assert host.read_at("/config", 4, 2) == b"45"
    assert host.read_at("/config", 8, 4) == b"89"
    assert host.read_at("/config", 64, 4) == b""
    assert host.read_at("/nothing", 0, 4) == b""
    assert host.notes == []


@pytest.mark.parametrize(
    ("line", "unassigned", "sizes"),
    [
        ("0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200", 0, [1 << 24]),
        ("0x0000000000000000 0x00000007ffffffff 0x000000000014220c", 1, [1 << 35]),
        ("0x0000000000000000 0x0000000000000000 0x000000002014220c", 1, []),  # not even its size is known
        ("0x0000000000000000 0x0000000000000000 0x0000000000000000", 0, []),  # the upper half of a 64-bit BAR
        ("0x0000000000000000 0x000000000000007f 0x0000000020040101", 0, []),  # I/O ports
    ],
)
def test_bars_without_an_address_are_counted(line: str, unassigned: int, sizes: list[int]) -> None:
    assert pci.parse_unassigned(line) == unassigned
    assert pci.parse_bars(line) == sizes


def test_versions_of_a_package_are_limited_to_the_newest() -> None:
    rows = [f"     {version} 600\n        600 https://a.example/x  Packages\n" for version in range(300, 0, -1)]
    policy = apt.parse_policy("a:\n  Candidate: 300\n  Version table:\n" + "".join(rows))["a"]
    assert len(policy.versions) == apt.MAX_VERSIONS
    assert policy.versions[:2] == ["300", "299"]


def test_rpms_are_found_by_name_and_by_name_with_version() -> None:
    said = "kernel 5.14.0-570.el9 x86_64\nkernel 5.14.0-70.el9 x86_64\ndkms 3:1.2-3.el9 noarch\n"
    said += "package a is not installed\n"
    asked = ["kernel", "kernel-5.14.0-70.el9.x86_64", "dkms-1.2-3.el9", "dkms", "a"]
    assert rpm.parse_query(said, asked) == {
        "kernel": "5.14.0-570.el9",
        "kernel-5.14.0-70.el9.x86_64": "5.14.0-70.el9",
        "dkms-1.2-3.el9": "3:1.2-3.el9",
        "dkms": "3:1.2-3.el9",
    }


def test_the_python_that_answers_is_told() -> None:
    assert system.os_facts(Host())["python"] == platform.python_version().rstrip("+")
