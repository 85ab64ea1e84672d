"""How simulated GPUs are connected: NVLink, the fabric, PCI and NUMA, in nvidia-smi and NVML as real ones say it."""

import json
import re

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host
from gpustrap.ansible_plugins.module_utils.gpustrap_node.pci import bridge_facts, pci_facts
from gpustrap.lab.gpus import links, state, sysfs
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus.machine import Fault, GpuError, inject

UUID = re.compile(r"UUID: GPU-[0-9a-f-]+")
ASK = """
import json, pynvml as n
n.nvmlInit()
all = [n.nvmlDeviceGetHandleByIndex(at) for at in range(n.nvmlDeviceGetCount())]
def link(device, at):
    try:
        return n.nvmlDeviceGetNvLinkState(device, at)
    except n.NVMLError as error:
        return "!%d" % error.value
def speed(device):
    value = n.nvmlDeviceGetFieldValues(device, [(n.NVML_FI_DEV_NVLINK_GET_SPEED, 1)])[0]
    return value.value.uiVal if value.nvmlReturn == 0 else "!%d" % value.nvmlReturn
def fabric(device):
    info = n.c_nvmlGpuFabricInfo_v3_t()
    n.nvmlDeviceGetGpuFabricInfoV(device, n.byref(info))
    return info.state
cpus = n.nvmlDeviceGetCpuAffinity(all[-1], 4)
print(json.dumps({
    "links": [[link(device, at) for at in (0, 4, 17, 18)] for device in all],
    "speed": [speed(device) for device in all],
    "fabric": [fabric(device) for device in all],
    "level": [n.nvmlDeviceGetTopologyCommonAncestor(all[0], device) for device in all],
    "p2p": [n.nvmlDeviceGetP2PStatus(all[0], device, n.NVML_P2P_CAPS_INDEX_WRITE) for device in all],
    "cpus": [at for at in range(256) if cpus[at // 64] >> at % 64 & 1],
}))
"""


def ask(node, there):
    state.write(node.state, there)
    done = node.python(ASK)
    return json.loads(done.stdout)


def test_links_of_an_h100_are_those_of_the_capture(node, real):
    _, theirs = real.section(real.H100, "capabilities :: nvlink -s")
    ours = node.smi(gpus.machine("8x-h100-sxm", gpus.driver("590")), "nvlink", "-s", "-i", "0").stdout
    assert UUID.sub("", ours.rstrip("\n")) == UUID.sub("", theirs.rstrip("\n"))


def test_links_of_an_a100_are_those_of_the_capture(node, real):
    theirs = real.text(real.A100_NVLINK)
    ours = node.smi(gpus.machine("8x-a100-sxm", gpus.driver("535")), "nvlink", "-s").stdout
    assert UUID.sub("", ours).split() == UUID.sub("", theirs).split()


def test_a_board_without_nvlink_says_what_the_capture_says(node, real):
    _, theirs = real.section(real.TURING_610, "capabilities :: nvlink -s")
    ours = node.smi(gpus.machine("1x-rtx3090", gpus.driver("610")), "nvlink", "-s").stdout
    assert ours.splitlines()[1:] == theirs.splitlines()[1:]
    # older ones say nothing at all (Debian's 550 over the lab's library)
    assert node.smi(gpus.machine("1x-rtx3090", gpus.driver("550")), "nvlink", "-s").stdout == "\n"


@pytest.mark.parametrize(
    ("name", "profile", "branch"), [("H100", "8x-h100-sxm", "590"), ("TURING_610", "1x-t4", "610")]
)
def test_matrix_has_the_form_of_the_real_one(node, real, name, profile, branch):
    _, theirs = real.section(getattr(real, name), "capabilities :: topo -m")
    ours = node.smi(gpus.machine(profile, gpus.driver(branch)), "topo", "-m").stdout
    assert re.sub(r"(GPU\d+\t)+", "GPU0\t", ours.splitlines()[0]) == theirs.splitlines()[0]
    assert ours.rstrip("\n").partition("Legend:")[2] == theirs.rstrip("\n").partition("Legend:")[2]
    [row] = [line for line in theirs.splitlines() if line.startswith("GPU0")]
    alone = next(line for line in ours.splitlines() if line.startswith("GPU0")).replace("NV18\t", "")
    assert re.sub(r"[\d,-]+\t\d", "CPUS", alone) == re.sub(r"[\d,-]+\t\d", "CPUS", row)


@pytest.mark.parametrize(
    ("profile", "rows", "levels", "p2p"),
    [
        ("8x-h100-sxm", ["NV18"], [0, 30, 30, 40, 50, 50, 50, 50], 0),
        ("4x-rtx3090", ["NODE"], [0, 40, 40, 40], 1),
        ("2x-rtx4090", ["PHB"], [0, 30], 1),
    ],
)
def test_nvidia_smi_and_nvml_agree_on_the_way_between_gpus(node, profile, rows, levels, p2p):
    there = gpus.machine(profile, gpus.driver("590"))
    lines = [line for line in node.smi(there, "topo", "-m").stdout.splitlines() if re.match(r"GPU\d", line)]
    words = {word for line in lines for word in line.split("\t")[1 : 1 + len(there.gpus)]}
    assert words == {" X ", *rows}
    found = ask(node, there)
    assert set(found["p2p"][1:]) == {p2p}
    if profile != "8x-h100-sxm":
        assert found["level"] == levels
    else:
        assert (found["level"][0], found["level"][4:]) == (0, [50] * 4)
        assert found["cpus"] == [*range(56, 112), *range(168, 224)]
    peers = node.smi(there, "topo", "-p2p", "r").stdout
    assert ("\tCNS\t" in peers) is bool(p2p)


def test_links_that_are_down(node):
    there = inject(gpus.machine("8x-h100-sxm", gpus.driver("590")), Fault("nvlink-down", 2, "4,17"))
    lines = node.smi(there, "nvlink", "-s", "-i", "2").stdout.splitlines()
    assert [line for line in lines if "inactive" in line] == ["\t Link 4: <inactive>", "\t Link 17: <inactive>"]
    assert "inactive" not in node.smi(there, "nvlink", "-s", "-i", "3").stdout
    assert node.smi(there, "topo", "-m").stdout.splitlines()[3].split("\t")[1:5] == ["NV16", "NV16", " X ", "NV16"]
    found = ask(node, there)
    assert found["links"][2] == [1, 0, 0, "!2"]
    assert found["links"][3] == [1, 1, 1, "!2"]
    assert found["speed"][2:4] == [26562, 26562]


def test_mig_takes_the_links(node):
    there = inject(gpus.machine("8x-h100-sxm", gpus.driver("590")), Fault("mig", 0))
    assert ask(node, there)["links"][0] == ["!3"] * 4
    assert node.smi(there, "topo", "-m").stdout.splitlines()[2].split("\t")[1] != "NV18"


def test_fabric_waits_for_its_manager(node):
    there = inject(gpus.machine("8x-h100-sxm", gpus.driver("590")), Fault("fabric-pending", 5))
    assert ask(node, there)["fabric"] == [3, 3, 3, 3, 3, 2, 3, 3]
    rows = node.smi(there, "--query-gpu=fabric.state", "--format=csv,noheader").stdout.splitlines()
    assert rows == ["Completed"] * 5 + ["In Progress"] + ["Completed"] * 2
    text = node.smi(there, "-q", "-i", "5").stdout
    assert re.search(r"Fabric\n +State +: In Progress\n +Status +: N/A", text)
    before = links.out_of_fabric(gpus.machine("8x-h100-sxm", gpus.driver("590")))
    assert ask(node, before)["fabric"] == [2] * 8
    assert ask(node, gpus.machine("4x-rtx3090", gpus.driver("590")))["fabric"] == [0] * 4


def test_acs_shows_on_the_bridges_of_its_gpu(tmp_path):
    there = inject(gpus.machine("4x-rtx3090"), Fault("acs", 1))
    sysfs.write(tmp_path, there)
    found = pci_facts(Host(str(tmp_path)))
    assert [one["iommu_type"] for one in found] == [None, "DMA", None, None]
    bridges = bridge_facts(Host(str(tmp_path)), found)
    assert [one["acs_redirect"] for one in bridges] == [False, True, False, False]
    with pytest.raises(GpuError, match="Tesla T4 cannot have acs"):
        inject(gpus.machine("1x-t4"), Fault("acs", 0))
