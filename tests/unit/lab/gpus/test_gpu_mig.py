"""MIG of simulated GPUs: instances made by nvidia-smi, listed by it and by nvidia-ml-py, as real boards show them."""

import json
import os
import re
from xml.etree import ElementTree as ET

import pytest

from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus import state
from gpustrap.lab.gpus.machine import Fault, inject

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes GPUs")
NVML = """
import json, pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
found = []
for index in range(n.nvmlDeviceGetMaxMigDeviceCount(device)):
    try:
        one = n.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
    except n.NVMLError_NotFound:
        break
    uuid, attributes = n.nvmlDeviceGetUUID(one), n.nvmlDeviceGetAttributes_v2(one)
    again = n.nvmlDeviceGetHandleByUUID(uuid)
    found.append([
        n.nvmlDeviceGetName(one), uuid, n.nvmlDeviceGetUUID(again), n.nvmlDeviceIsMigDeviceHandle(one).value,
        n.nvmlDeviceGetGpuInstanceId(one), n.nvmlDeviceGetComputeInstanceId(one), n.nvmlDeviceGetIndex(one),
        n.nvmlDeviceGetUUID(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(one)),
        n.nvmlDeviceGetMemoryInfo(one).total >> 20, attributes.multiprocessorCount, attributes.memorySizeMB,
    ])
capacity = [n.nvmlDeviceGetGpuInstanceRemainingCapacity(device, number) for number in (19, 14, 9, 0)]
profile = n.nvmlDeviceGetGpuInstanceProfileInfo(device, n.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
print(json.dumps([found, capacity, [profile.id, profile.name, profile.instanceCount, profile.memorySizeMB]]))
"""


@pytest.fixture
def mig(node):
    """nvidia-smi on a machine whose first GPU is in MIG mode."""
    state.write(node.state, inject(gpus.machine("8x-h100-sxm", gpus.driver("590")), Fault("mig", 0)))

    def run(*words):
        return node.smi(state.parse(node.state.read_text(encoding="ascii")), *words)

    return run


def made(done):
    """The ids of the GPU instances that were made."""
    return [int(number) for number in re.findall(r"created GPU instance ID +(\d+)", done.stdout)]


@root
def test_instances_lie_where_the_driver_puts_them(mig):
    """The ids are those of public logs of A100 and H100 for the same commands."""
    done = mig("mig", "-i", "0", "-cgi", "9,14,19,1g.10gb", "-C")
    assert (done.returncode, made(done)) == (0, [2, 3, 9, 10])
    assert done.stdout.splitlines()[:2] == [
        "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.40gb (ID  9)",
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 using profile MIG 3g.40gb (ID  2)",
    ]
    mig("mig", "-dci")
    mig("mig", "-dgi")
    assert made(mig("mig", "-cgi", "19,19,19,19,19,19,19")) == [13, 11, 12, 7, 8, 9, 10]
    mig("mig", "-dgi")
    assert made(mig("mig", "-cgi", "14,14,14,20", "-C")) == [5, 3, 4, 13]


@root
def test_what_does_not_fit_is_refused_and_the_rest_stays(mig):
    done = mig("mig", "-cgi", "9,9,19", "-C")
    assert done.returncode == 24
    assert made(done) == [2, 1]
    assert done.stdout.splitlines()[-2:] == [
        "Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Resources",
        "Failed to create GPU instances: Insufficient Resources",
    ]
    assert mig("mig", "-cgi", "7g.40gb").stdout.startswith(
        "Unable to create a GPU instance on GPU  0 using profile 7g.40gb: Invalid Argument\n"
    )
    assert mig("-mig", "0", "-i", "0").returncode == 19
    done = mig("mig", "-dgi")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        19,
        "Unable to destroy GPU instance ID  1 from GPU  0: In use by another client",
    )
    assert mig("mig", "-dci", "-gi", "2").stdout.count("Successfully destroyed compute instance") == 1
    assert mig("mig", "-dgi", "-gi", "2").returncode == 0
    assert mig("-L", "-i", "0").stdout.count("MIG 3g.40gb") == 1


@root
def test_nothing_to_tell_is_told_as_real_ones_do(mig):
    assert (mig("mig", "-lgi").returncode, mig("mig", "-lgi").stdout) == (6, "No GPU instances found: Not Found\n")
    assert mig("mig", "-lci").stdout == "No GPU instances found: Not Found\n"
    assert (mig("mig", "-i", "1", "-lgi").returncode, mig("mig", "-i", "1", "-lgi").stdout) == (
        0,
        "No MIG-enabled devices found.\n",
    )
    assert "  No MIG devices found" in mig("-i", "0").stdout
    mig("mig", "-cgi", "19")
    for command in ("-lci", "-dci"):
        assert mig("mig", command).stdout == "No compute instances found: Not Found\n"


def test_a_board_without_mig(node):
    there = gpus.machine("1x-t4", gpus.driver())
    done = node.smi(there, "mig", "-lgip")
    assert (done.returncode, done.stdout) == (6, "No MIG-supported devices found.\n")
    done = node.smi(there, "-mig", "1")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "Unable to enable MIG Mode for GPU 00000000:00:1E.0: Not Supported",
        "Treating as warning and moving on.",
        "All done.",
    ]


@root
def test_nvidia_ml_py_finds_the_same_devices(node, mig):
    mig("mig", "-cgi", "9,14,19", "-C")
    mig("mig", "-cgi", "19")  # without a compute instance it is no device
    uuids = re.findall(r"\(UUID: (MIG-[0-9a-f-]{36})\)", mig("-L", "-i", "0").stdout)
    done = node.python(NVML)
    found, capacity, profile = json.loads(done.stdout)
    whole = gpus.machine("8x-h100-sxm").gpus[0].uuid
    name = "NVIDIA H100 80GB HBM3 MIG "
    assert [one[1] for one in found] == uuids == [one[2] for one in found]
    assert [one[:1] + one[3:] for one in found] == [
        [name + "3g.40gb", 1, 2, 0, 0, whole, 40448, 60, 40448],
        [name + "2g.20gb", 1, 3, 0, 1, whole, 20096, 32, 20096],
        [name + "1g.10gb", 1, 9, 0, 2, whole, 9984, 16, 9984],
    ]
    assert capacity == [0, 0, 0, 0]
    assert profile == [9, "MIG 3g.40gb", 2, 40448]


@root
def test_capture_of_an_h100_with_the_same_instances(mig, real):
    """The listing, the table and ``-q`` have the form of the theirs ones, and the values of their devices."""
    mig("mig", "-cgi", "9,14,19,19", "-C")
    hide = re.compile(r"UUID: (GPU|MIG)-[0-9a-f-]+")
    _, theirs = real.section(real.H100_MIG, "capabilities :: list (-L)")
    assert hide.sub("", mig("-L", "-i", "0").stdout.strip()) == hide.sub("", theirs)

    _, theirs = real.section(real.H100_MIG, "idle :: nvidia-smi")
    ours, theirs = (words[words.index("| MIG devices:") :].splitlines() for words in (mig("-i", "0").stdout, theirs))
    used = re.compile(r" +\d+MiB / ")
    assert [used.sub("", line) for line in ours] == [used.sub("", line) for line in theirs]
    assert [len(line) for line in ours] == [len(line) for line in theirs]

    _, theirs = real.section(real.H100_MIG, "idle :: query (-q)")
    assert real.labels(mig("-q", "-i", "0").stdout) == real.labels(theirs)

    command, theirs = real.section(real.H100_MIG, "capabilities :: nvlink -s")
    ours = mig("nvlink", "-s", "-i", "0").stdout.strip()
    assert hide.sub("", ours) == hide.sub("", theirs), command


@root
def test_capture_of_an_h100_in_mig_mode_lacks_the_same_values(mig, real):
    command, theirs = real.section(real.H100_MIG, "idle :: query-gpu")
    query = re.search(r"--query-gpu=(\S+)", command).group(1)
    head, values = (line.split(", ") for line in theirs.strip().splitlines()[:2])
    ours = mig(f"--query-gpu={query}", "--format=csv", "-i", "0").stdout.splitlines()
    assert ours[0].split(", ") == head
    differ = {key for key, a, b in zip(head, values, ours[1].split(", "), strict=True) if ("N/A" in a) != ("N/A" in b)}
    assert differ <= {"pcie.link.gen.hostmax"}  # the captured machine is a virtual one


@root
def test_xml_has_the_devices(mig):
    mig("mig", "-cgi", "9,14", "-C")
    document = ET.fromstring(mig("-q", "-x", "-i", "0").stdout)
    devices = document.findall("gpu/mig_devices/mig_device")
    assert [one.findtext("gpu_instance_id") for one in devices] == ["2", "3"]
    assert devices[0].findtext("fb_memory_usage/total") == "40448 MiB"
    assert devices[1].findtext("device_attributes/shared/multiprocessor_count") == "32"


@root
def test_capture_of_an_a100_with_the_same_instances(node, real, tmp_path, monkeypatch):
    theirs = ET.fromstring(real.text("nvidia-smi-xml/a100-sxm4-v12.xml"))
    monkeypatch.setenv("LAB_GPU_PROC", str(tmp_path))
    there = gpus.machine("8x-a100-sxm", gpus.driver("535"))
    assert node.smi(there, "-mig", "1", "-i", "0").returncode == 0
    there = state.parse(node.state.read_text(encoding="ascii"))
    done = node.smi(there, "mig", "-i", "0", "-cgi", "15,15,15,15", "-C")
    assert sorted(made(done)) == [3, 4, 5, 6]
    there = state.parse(node.state.read_text(encoding="ascii"))
    ours = ET.fromstring(node.smi(there, "-q", "-x", "-i", "0").stdout)

    def rows(document):
        used = ("used", "free")
        return [
            [(one.tag, (one.text or "").strip()) for one in device.iter() if one.tag not in used]
            for device in document.findall("gpu/mig_devices/mig_device")
        ]

    assert rows(ours) == rows(theirs)
    tags = {one.tag for one in ours.find("gpu")} ^ {one.tag for one in theirs.find("gpu")}
    assert tags <= {"inforom_bbx_flush", "sparse_operation_mode"}  # came after 535.54, within the branch
    for path in ("fb_memory_usage/total", "fb_memory_usage/reserved", "bar1_memory_usage/total", "pci/pci_device_id",
                 "pci/pci_sub_system_id", "temperature/gpu_temp_max_threshold", "gpu_power_readings/max_power_limit",
                 "remapped_rows", "clocks/mem_clock", "max_clocks/graphics_clock", "product_name"):  # fmt: skip
        assert ours.findtext(f"gpu/{path}").strip() == theirs.findtext(f"gpu/{path}").strip(), path


@root
def test_mig_of_an_a100_waits_while_it_is_in_use(node, tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_GPU_PROC", str(tmp_path))
    (tmp_path / "7").mkdir()
    (tmp_path / "7/comm").write_text("nv-hostengine\n")
    (tmp_path / "7/maps").write_text("")

    def mode(there, *words):
        done = node.smi(there, *words)
        found = state.parse(node.state.read_text(encoding="ascii"))
        names = "mig.mode.current,mig.mode.pending"
        return done, node.smi(found, f"--query-gpu={names}", "--format=csv,noheader", "-i", "0").stdout, found

    done, said, there = mode(gpus.machine("8x-a100-sxm", gpus.driver()), "-mig", "1", "-i", "0")
    bus = "00000000:07:00.0"
    assert done.stdout.splitlines()[0] == (
        f"Warning: MIG mode is in pending enable state for GPU {bus}:In use by another client"
    )
    assert done.stdout.splitlines()[1].startswith(f"{bus} is currently being used by one or more other processes")
    assert (done.returncode, said) == (0, "Disabled, Enabled\n")
    (tmp_path / "7/comm").write_text("sh\n")
    done, said, there = mode(there, "-r", "-i", "0")
    assert said == "Enabled, Enabled\n", "a reset makes it so"
    # of Hopper it is so at once
    (tmp_path / "7/comm").write_text("nv-hostengine\n")
    assert mode(gpus.machine("8x-h100-sxm", gpus.driver()), "-mig", "1", "-i", "0")[1] == "Enabled, Enabled\n"


def test_lists_have_the_form_of_the_real_ones(mig):
    """Lines of public logs of H100 80GB HBM3: of branch 590 the table of profiles is wider than it was."""
    lines = mig("mig", "-lgip", "-i", "0").stdout.splitlines()
    assert lines[2:4] == [
        "| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |",
        "|                                Free/Total   GiB              CE    JPEG  OFA  |",
    ]
    assert "|   0  MIG 1g.10gb+me      20     1/1        9.75       No     16     1     0   |" in lines
    assert "|   0  MIG 7g.80gb          0     1/1        79.25      No     132    7     0   |" in lines
    assert "|                                                               8     7     1   |" in lines
    assert mig("mig", "-lgipp", "-i", "0").stdout.splitlines()[3:7] == [
        "GPU  0 Profile ID 14 Placements: {0,2,4}:2",
        "GPU  0 Profile ID  9 Placements: {0,4}:4",
        "GPU  0 Profile ID  5 Placement : {0}:4",
        "GPU  0 Profile ID  0 Placement : {0}:8",
    ]
