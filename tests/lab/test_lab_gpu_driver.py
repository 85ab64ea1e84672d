"""A simulated driver on a node: devices, modules, the kernel's log, settings; and nothing of it on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpustrap.lab.gpus import node as gpu_node
from gpustrap.lab.gpus.machine import Fault, inject
from gpustrap.lab.manager import Lab, LabNode, NodeSpec

pytestmark = pytest.mark.slow
QUERY = "nvidia-smi --format=csv,noheader,nounits --query-gpu="
LOG = "journalctl -k -b -o cat --no-pager"


@pytest.fixture
def gpu_node_of(lab: Lab, node_names: Iterator[str]) -> Iterator[Callable[..., LabNode]]:
    started: list[str] = []

    def make(gpus: str, system: str = "debian13") -> LabNode:
        started.append(next(node_names))
        return lab.up([NodeSpec(started[-1], system, gpus=gpus)])[0]

    yield make
    for name in started:
        lab.remove(name)


def lab_gpu(lab: Lab, node: LabNode, *words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "gpustrap", "lab", "gpu", node.name, "--lab", lab.name, "--format", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}


def test_devices_modules_and_the_kernels_log(
    lab: Lab, gpu_node_of: Callable[..., LabNode], this_machine: Callable[[], dict[str, Any]]
) -> None:
    before = this_machine()
    node = gpu_node_of("4x-rtx3090:580")
    nodes = "stat -c '%n %Hr %Lr %A' /dev/nvidia*"
    listed = {line.split()[0][5:]: line.split()[1:] for line in node.exec(nodes).stdout.splitlines()}
    assert listed["nvidia3"] == ["195", "3", "crw-rw-rw-"]
    assert listed["nvidiactl"][:2] == ["195", "255"]
    major = node.exec("awk '$2 == \"nvidia-uvm\" {print $1}' /proc/devices").stdout.strip()
    assert listed["nvidia-uvm"][0] == major
    assert len(listed) == 8
    assert node.exec("cat /dev/nvidia0").returncode != 0
    modules = node.exec("cd /sys/module && cat nvidia/version nvidia_uvm/refcnt && ls -d nvidia*").stdout.split()
    assert modules == ["580.178.04", "0", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
    own = {name for name in before["modules"] if not name.startswith(("nvidia", "nouveau"))}
    assert own <= set(node.exec("ls /sys/module").stdout.splitlines()), "this machine's modules are the node's as well"

    first = node.exec(LOG).stdout.splitlines()
    assert len(first) == 2
    assert "580.178.04" in first[1]
    code, data = lab_gpu(lab, node, "--fault", "lost", "--gpu", "2")
    assert (code, data["gpus"][2]["faults"]) == (0, ["lost"])
    assert "Xid (PCI:0000:81:00): 79" in node.exec(LOG).stdout
    assert lab_gpu(lab, node, "--clear")[0] == 0
    assert len(node.exec(LOG).stdout.splitlines()) == 4, "what was logged stays, and nothing is logged twice"

    assert node.exec("nvidia-smi -pm 1 && nvidia-smi -pl 300 -i 1").returncode == 0
    assert "Insufficient Permissions" in node.exec("nvidia-smi -pm 0", user="ubuntu").stdout
    assert lab_gpu(lab, node)[1]["gpus"][1]["settings"] == ["persistence mode on", "power limit 300 W"]
    node = lab.reboot(node.name)
    assert node.exec(QUERY + "persistence_mode,power.limit -i 1").stdout == "Disabled, 350.00\n"
    assert node.exec(LOG).stdout.splitlines() == first, "the log of another boot"
    assert node.exec("systemctl is-system-running").stdout == "running\n"

    assert lab_gpu(lab, node, "--fault", "nouveau", "--next-boot")[0] == 0
    node = lab.reboot(node.name)
    assert node.exec("ls /dev/nvidia* /sys/module/nvidia").stdout == ""
    assert node.exec("test -d /sys/module/nouveau").returncode == 0
    assert "nouveau 0000:01:00.0" in node.exec(LOG).stdout
    gpu_node.prepare(lab.gpus(node.name), replace(gpu_node.read(lab.gpus(node.name)), driver=None, faults=()))
    node = lab.reboot(node.name)
    assert node.exec("ls /dev/nvidia* /sys/module/nvidia /sys/module/nouveau").stdout == ""
    assert node.exec(LOG).stdout == ""
    assert this_machine() == before


# Debian's own nvidia-smi, out of its package and not installed, where its archive has it.
REAL = """
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ ! -f "$file" ] || sed -i 's/^Components: .*/Components: main non-free/; s/ main$/ main non-free/' "$file"
done
apt-get -q update && cd /tmp && apt-get -q download nvidia-smi && dpkg -x nvidia-smi_*.deb real
"""
# Every command by the real one and by ours on the same state: what they print, exit codes, and the state after.
SAME = """
real=/tmp/real/usr/lib/nvidia/current/nvidia-smi state=/run/lab-gpu/state
while read -r user words; do
    as() { if [ "$user" = root ]; then "$@"; else runuser -u "$user" -- "$@"; fi; }
    cp $state /tmp/before
    as $real $words >/tmp/theirs 2>&1; theirs=$?; sort $state >/tmp/theirs.state
    cp /tmp/before $state
    as nvidia-smi $words >/tmp/ours 2>&1; ours=$?
    [ $theirs = $ours ] || echo "$words: exit code $ours, not $theirs"
    diff /tmp/theirs /tmp/ours || echo "$words: other words"
    sort $state | diff /tmp/theirs.state - || echo "$words: another state"
done </tmp/commands
"""
SETTING = """
root -pm 1 -i 0
root -pm 1 -i 0
root -pm 0
root -pm 2
root -pl 65
root -pl 65 -i 0
root -pl 5000 -i 0
root -pl many
root -mig 1 -i 0
root -mig 3 -i 0
root -pm 1 -pl 500
ubuntu -pm 1
ubuntu -pm 0
ubuntu -mig 1 -i 0
"""
OF_HGX = """
root -pl 500 -i 0
root -pl 300 -i 2,3
ubuntu -pl 400 -i 2
root -mig 1 -i 4,5
root nvlink -s -i 3
root topo -p2p r
root topo -p2p n
root mig -lgip -i 0
root mig -lgi
root mig -lci
root mig -i 3 -lgi
root mig -dgi -i 3
"""
WITH_INSTANCES = """
root -L
root mig -lgi
root mig -lci
root mig -lgip
root mig -lgipp
root -mig 0 -i 0
root mig -dci -gi 99
root nvlink -s
"""


@pytest.mark.parametrize(("system", "gpus"), [("debian13", "8x-h100-sxm:550"), ("debian12", "1x-t4:535")])
def test_the_real_nvidia_smi_sets_and_lists_the_same(
    gpu_node_of: Callable[..., LabNode], system: str, gpus: str
) -> None:
    node = gpu_node_of(gpus, system)
    if node.exec(REAL).returncode != 0:
        pytest.skip("no nvidia-smi in the apt archive of this machine")

    def differences(commands: str) -> str:
        node.exec("cat >/tmp/commands", stdin=commands.strip().encode() + b"\n")
        return node.exec(SAME).stdout

    hgx = gpus.startswith("8x")
    assert differences(SETTING + OF_HGX if hgx else SETTING) == ""
    if hgx:
        assert node.exec("nvidia-smi mig -i 0 -cgi 9,14,19 -C && nvidia-smi mig -i 0 -cgi 19").returncode == 0
        assert differences(WITH_INSTANCES) == ""
        real = node.exec("/tmp/real/usr/lib/nvidia/current/nvidia-smi -q -i 0").stdout
        mark, end = "    MIG Device\n", "    Accounting Mode"
        theirs, ours = (
            words.partition(mark)[2].partition(end)[0] for words in (real, node.exec("nvidia-smi -q").stdout)
        )
        assert theirs == ours != ""


def test_a_fault_of_the_machine_and_one_that_cannot_be(lab: Lab, gpu_node_of: Callable[..., LabNode]) -> None:
    node = gpu_node_of("1x-t4:580")
    assert lab_gpu(lab, node, "--fault", "version-mismatch=570.211.01")[1]["faults"] == ["version-mismatch=570.211.01"]
    assert node.exec("nvidia-smi").returncode == 18
    assert node.exec("cat /sys/module/nvidia/version").stdout == "570.211.01\n"
    assert "API mismatch: the client has the version 580.178.04" in node.exec(LOG).stdout
    code, data = lab_gpu(lab, node, "--fault", "mig", "--gpu", "0")
    assert (code, "Tesla T4 cannot have mig" in data["stderr"]) == (3, True)
    there = inject(gpu_node.running(node), Fault("gsp-timeout", 0, "1"))
    gpu_node.change(node, there)
    assert "): 119, " in node.exec(LOG).stdout
