"""Simulated GPUs on a real node: the node's own programs see them, faults come and go, a driver takes a reboot."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpustrap.commands.enroll import Terms, enroll_nodes
from gpustrap.errors import GpustrapError
from gpustrap.lab import images
from gpustrap.lab.gpus import node as gpu_node
from gpustrap.lab.gpus.machine import Fault, GpuError, clear, driver, inject, profiles
from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.model.node import Secrets
from gpustrap.model.site import Site
from gpustrap.site.inventory import load_nodes

pytestmark = pytest.mark.slow
QUERY = "nvidia-smi --format=csv,noheader,nounits --query-gpu="
NVML = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
count, device, pending, unused = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
print(nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), count.value)
for index in range(count.value):
    print(index, nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)))
"""


@pytest.fixture
def gpu_nodes(lab: Lab, node_names: Iterator[str]) -> Iterator[Callable[..., LabNode]]:
    started: list[str] = []

    def make(gpus: str, system: str = "debian13") -> LabNode:
        started.append(next(node_names))
        return lab.up([NodeSpec(started[-1], system, gpus=gpus)])[0]

    yield make
    for name in started:
        lab.remove(name)


@pytest.fixture(params=["debian13", "ubuntu2404"])
def system(request: pytest.FixtureRequest, lab: Lab) -> str:
    """Ubuntu, too, where its image can be pulled; the report of the lane says whether it could."""
    try:
        images.ensure(lab.engine, request.param)
    except GpustrapError as error:
        if {problem.code for problem in error.problems} != {"image-not-reachable"}:
            raise
        pytest.skip(f"no image of {request.param} could be pulled")
    return str(request.param)


def verb(site: Site, *words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "gpustrap", *words, "--site", str(site.root), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def enrolled(site: Site, node: LabNode) -> Site:
    secrets = Secrets(ssh_password=node.password, become_password=node.password)
    enroll_nodes(site, load_nodes(site), secrets=secrets, terms=Terms(accept_new=True, passwordless_sudo=True))
    return site


def test_the_node_sees_its_gpus_and_their_faults(
    system: str, tmp_path: Path, gpu_nodes: Callable[..., LabNode], make_site: Callable[..., Site]
) -> None:
    node = gpu_nodes("4x-rtx3090:580", system)
    lines = node.exec(QUERY + "pci.bus_id,name", user="ubuntu").stdout.splitlines()
    assert lines == [f"00000000:{bus}:00.0, NVIDIA GeForce RTX 3090" for bus in ("01", "41", "81", "C1")]
    assert node.exec(["python3", "-c", NVML], user="ubuntu").stdout.splitlines()[0] == "0 0 4"

    code, data = verb(enrolled(make_site(tmp_path, node), node), "inspect")
    assert code in (0, 11), data
    text = json.dumps(data)
    assert all(f"0000:{bus}:00.0" in text for bus in ("01", "41", "81", "c1"))
    assert "580.178.04" in text

    there = gpu_node.running(node)
    gpu_node.change(node, inject(inject(there, Fault("narrow", 0)), Fault("lost", 2)))
    assert node.exec("cat /sys/bus/pci/devices/0000:01:00.0/current_link_width").stdout == "8\n"
    assert "GPU is lost" in node.exec("nvidia-smi").stdout
    assert node.exec("nvidia-smi").returncode == 15
    assert node.exec(["python3", "-c", NVML]).stdout.splitlines()[3] == "2 15"
    gpu_node.change(node, clear(there))
    assert node.exec("nvidia-smi").returncode == 0
    with pytest.raises(GpuError, match="after a reboot"):
        gpu_node.change(node, replace(there, driver=driver("590")))


def test_a_driver_waits_for_the_reboot(lab: Lab, system: str, gpu_nodes: Callable[..., LabNode]) -> None:
    node = gpu_nodes("1x-rtx3090:580", system)
    version = "cat /proc/driver/nvidia/version"
    boot = node.exec("cat /proc/sys/kernel/random/boot_id").stdout
    mounts = node.exec("findmnt -rno TARGET | sort").stdout
    before = gpu_node.read(lab.gpus(node.name))
    gpu_node.prepare(lab.gpus(node.name), replace(before, driver=driver("590")))
    assert "580.178.04" in node.exec(version).stdout
    node = lab.reboot(node.name)
    assert "590.48.01" in node.exec(version).stdout
    assert node.exec(QUERY + "driver_version").stdout == "590.48.01\n"
    assert node.exec("cat /proc/sys/kernel/random/boot_id").stdout != boot
    assert node.exec("findmnt -rno TARGET | sort").stdout == mounts
    assert node.exec("systemctl is-system-running").stdout == "running\n"

    gpu_node.prepare(lab.gpus(node.name), replace(before, driver=None))
    node = lab.reboot(node.name)
    assert node.exec("test -e /proc/driver/nvidia || test -e /usr/bin/nvidia-smi").returncode == 1
    assert "10de" in node.exec("cat /sys/bus/pci/devices/0000:01:00.0/vendor").stdout


def test_plan_refuses_what_no_driver_runs(
    tmp_path: Path, gpu_nodes: Callable[..., LabNode], make_site: Callable[..., Site]
) -> None:
    node = gpu_nodes("mixed-1080ti-5090")
    code, data = verb(enrolled(make_site(tmp_path, node), node), "plan")
    assert code == 3, data
    words = json.dumps(data["problems"])
    assert "1080" in words
    assert "5090" in words


# Debian's own nvidia-smi, out of its package and not installed, where its archive has it.
REAL = """
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ ! -f "$file" ] || sed -i 's/^Components: .*/Components: main non-free/; s/ main$/ main non-free/' "$file"
done
apt-get -q update && cd /tmp && apt-get -q download nvidia-smi && dpkg -x nvidia-smi_*.deb real
"""
AGREE = (
    "index,name,uuid,pci.bus_id,memory.total,memory.free,temperature.gpu,power.draw,pcie.link.width.current,"
    "ecc.mode.current,ecc.errors.uncorrected.volatile.total,mig.mode.current,clocks_throttle_reasons.active,compute_cap"
)


@pytest.mark.parametrize(
    ("system", "gpus", "fault"),
    [
        ("debian13", "8x-h100-sxm:550", Fault("ecc-uncorrected", 3, "2")),
        ("debian13", "2x-rtx4090:550", Fault("err", 1)),
        ("debian12", "1x-t4:535", Fault("hot", 0)),
    ],
)
def test_the_real_nvidia_smi_says_the_same(
    gpu_nodes: Callable[..., LabNode], system: str, gpus: str, fault: Fault
) -> None:
    node = gpu_nodes(gpus, system)
    if node.exec(REAL).returncode != 0:
        pytest.skip("no nvidia-smi in the apt archive of this machine")
    real, ours = "/tmp/real/usr/lib/nvidia/current/nvidia-smi", "/usr/bin/nvidia-smi"
    there = gpu_node.running(node)
    fields = 'grep -o \'^"[^" ]*"\''
    assert node.exec(f"{real} --help-query-gpu | {fields}").stdout == node.exec(f"{ours} --help-query-gpu").stdout[
        len('List of valid properties to query for the switch "--query-gpu":\n\n') :
    ].replace("\n\n", "\n")
    for state in (there, inject(there, fault), inject(there, Fault("version-mismatch"))):
        gpu_node.change(node, state)
        for question in ("", " -L", f" --query-gpu={AGREE} --format=csv"):
            theirs, mine = node.exec(real + question), node.exec(ours + question)
            assert mine.returncode == theirs.returncode, question
            # the first line of the table is the time
            skip = 0 if question or state.fault("version-mismatch") else 1
            assert mine.stdout.splitlines()[skip:] == theirs.stdout.splitlines()[skip:]


def test_every_profile_boots_and_nvidia_ml_py_counts_its_gpus(gpu_nodes: Callable[..., LabNode]) -> None:
    source = Path(pynvml.__file__).read_bytes()
    ask = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
    for profile in profiles():
        node = gpu_nodes(f"{profile}:580" + (":proprietary" if profile == "1x-gtx1080ti" else ""))
        node.exec("cat >/tmp/pynvml.py", stdin=source)
        wanted = len(gpu_node.running(node).bound())
        assert node.exec(f"cd /tmp && python3 -c '{ask}'").stdout == f"{wanted}\n", profile
        listed = node.exec("nvidia-smi -L").stdout
        assert listed.count("UUID: GPU-") == wanted, profile
        assert node.exec("systemctl is-system-running").stdout == "running\n", profile


def test_bad_gpus_are_refused_before_anything_starts(lab: Lab, node_names: Iterator[str]) -> None:
    for gpus, words in (("9x-tpu", "no GPU profile"), ("1x-t4:999", "no driver branch"), ("1x-t4:615:proprietary", "")):
        name = next(node_names)
        with pytest.raises(GpustrapError) as caught:
            lab.up([NodeSpec(name, "debian13", gpus=gpus)])
        [problem] = caught.value.problems
        assert problem.code == "lab-gpus-invalid"
        assert words in problem.message
        assert name not in {status.name for status in lab.status()}
