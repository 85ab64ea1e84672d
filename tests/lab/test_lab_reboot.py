"""A driver comes by plain apt; gpustrap_reboot brings it to life: once, only where that helps, not in vain twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.content import ansible_config
from gpustrap.lab.gpus import node as gpus
from gpustrap.lab.gpus.machine import Fault, inject
from gpustrap.lab.manager import Lab, LabNode, NodeSpec

pytestmark = pytest.mark.slow
OLD, NEW = "580.178.04", "595.71.05"
SET = (
    *("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced", "nvidia-kernel-support"),
    *("firmware-nvidia-gsp", "libcuda1", "libnvidia-ml1", "libnvidia-cfg1"),
    *("libnvidia-ptxjitcompiler1", "libnvidia-gpucomp"),
)
SOURCE = """
set -e
mkdir -p /etc/apt/keyrings
python3 - {base} <<'END'
import sys, urllib.request
key = urllib.request.urlopen(sys.argv[1] + "/3bf863cc.pub").read()
open("/etc/apt/keyrings/nvidia.asc", "wb").write(key)
line = "deb [signed-by=/etc/apt/keyrings/nvidia.asc] %s /\\n" % sys.argv[1]
open("/etc/apt/sources.list.d/nvidia.list", "w").write(line)
END
apt-get -q update
"""
PLAYBOOK = [
    {
        "hosts": "all",
        "gather_facts": False,
        "become": True,
        "tasks": [
            {"gpustrap_reboot": {"stage": "driver", "allowed": "{{ allowed }}", "minutes": "{{ minutes }}"}}
            | {"register": "step", "ignore_errors": True, "ignore_unreachable": True},
            {"ansible.builtin.copy": {"content": "{{ step | to_json }}", "dest": "{{ out }}", "mode": "0600"}}
            | {"delegate_to": "localhost", "connection": "local", "become": False},
        ],
    }
]
Step = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def node(lab: Lab, node_names: Iterator[str]) -> Iterator[LabNode]:
    name = next(node_names)
    there = lab.up([NodeSpec(name, "debian12", gpus="4x-rtx3090")])[0]
    base = f"{lab.standins()['gpustrap_nvidia_repository']}/debian12/x86_64"
    done = there.exec(SOURCE.format(base=base), timeout=300)
    assert done.returncode == 0, done.stderr
    install(there, OLD, "linux-headers-$(uname -r)")
    yield there
    lab.remove(name)


def install(node: LabNode, version: str, *more: str) -> None:
    names = " ".join([*more, *(f"{name}={version}-1" for name in SET)])
    command = f"DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends {names}"
    done = node.exec(command, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def step(node: LabNode, tmp_path_factory: pytest.TempPathFactory) -> Step:
    """Run the step on the node by way of SSH and sudo, and give its result."""
    directory = tmp_path_factory.mktemp("reboot")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True)
    home = f"/home/{node.user}/.ssh"
    write = f"install -d -o {node.user} -m 700 {home} && cat >{home}/authorized_keys && chown {node.user} {home}/*"
    assert node.exec(write, stdin=(directory / "key.pub").read_bytes()).returncode == 0
    host = {
        "ansible_host": node.address,
        "ansible_user": node.user,
        "ansible_become_password": node.password,
        "ansible_ssh_private_key_file": str(directory / "key"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={directory}/known -o StrictHostKeyChecking=accept-new",
        "out": str(directory / "out.json"),
    }
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {node.name: host}}}))
    (directory / "play.yml").write_text(yaml.safe_dump(PLAYBOOK))

    def run(*, allowed: bool = False, minutes: int = 5) -> dict[str, Any]:
        (directory / "out.json").unlink(missing_ok=True)
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        extra = json.dumps({"allowed": allowed, "minutes": minutes})
        done = subprocess.run(
            [program, "-i", directory / "hosts.yml", directory / "play.yml", "-e", extra],
            env=os.environ | {"ANSIBLE_CONFIG": str(ansible_config()), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(directory)},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert (directory / "out.json").exists(), done.stdout + done.stderr
        found: dict[str, Any] = json.loads((directory / "out.json").read_text())
        return found

    return run


def told(result: dict[str, Any]) -> tuple[str, str]:
    return result["boot"]["state"], result["boot"]["code"]


def boot_id(node: LabNode) -> str:
    return node.exec("cat /proc/sys/kernel/random/boot_id").stdout.strip()


def test_a_fresh_driver_waits_for_leave(node: LabNode, step: Step) -> None:
    before = boot_id(node)
    result = step()
    assert (told(result), result["changed"]) == (("reboot-needed", "driver-reboot"), False)
    assert boot_id(node) == before


def test_with_leave_one_reboot_loads_it_and_the_next_time_there_is_none(node: LabNode, step: Step) -> None:
    before = boot_id(node)
    result = step(allowed=True)
    assert (told(result), result["driver_loaded"]) == (("rebooted", "driver-reboot"), True)
    assert OLD in node.exec("cat /proc/driver/nvidia/version").stdout
    after = boot_id(node)
    assert after != before
    again = step(allowed=True)
    assert (told(again), again["changed"], boot_id(node)) == (("fits", "driver-runs"), False, after)


def test_driver_lib_mismatch_that_the_reboot_does_not_mend_is_not_booted_for_twice(
    lab: Lab, node: LabNode, step: Step
) -> None:
    install(node, NEW)
    result = step()
    assert result["boot"]["reason"] == f"driver {OLD} is loaded, {NEW} is installed"
    gpus.prepare(lab.gpus(node.name), inject(gpus.read(lab.gpus(node.name)), Fault("version-mismatch")))
    first = step(allowed=True)
    assert (told(first), first["changed"]) == (("useless", "reboot-loop"), True)
    there = boot_id(node)
    second = step(allowed=True)
    assert told(second) == ("useless", "reboot-loop")
    assert "and that did not help" in second["msg"]
    assert boot_id(node) == there


def test_kernel_moved_no_module_is_not_booted_into(node: LabNode, step: Step) -> None:
    # Another kernel has the module: a container in which none has any would be taken for one that uses its host's.
    node.exec("cp -r /lib/modules/$(uname -r) /lib/modules/0.1-lab && touch /boot/vmlinuz-0.1-lab")
    node.exec("rm -r /lib/modules/$(uname -r)/updates && depmod")
    there = boot_id(node)
    assert told(step(allowed=True)) == ("useless", "kernel-moved-no-module")
    assert boot_id(node) == there
    node.exec("rm -r /lib/modules/0.1-lab /boot/vmlinuz-0.1-lab")
    assert node.exec("dkms install --force nvidia/" + NEW, timeout=300).returncode == 0


def test_a_node_that_does_not_come_back_is_told_with_its_last_words(lab: Lab, node: LabNode, step: Step) -> None:
    gpus.prepare(lab.gpus(node.name), replace(gpus.read(lab.gpus(node.name)), faults=()))
    node.exec("rm -f /var/lib/gpustrap/reboots.json; systemctl mask ssh.service ssh.socket")
    result = step(allowed=True, minutes=2)
    assert (result["unreachable"], told(result)) == (True, ("lost", "reboot-lost"))
    assert result["msg"].startswith("it did not come back within 2 min of its reboot\nits last answer: ")
    assert "screen or BMC console" in result["boot"]["remedy"]
