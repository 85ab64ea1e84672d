"""What simulated GPUs are set to: by apply, by the next boot alone, and back when not asked for any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.content import ansible_config
from gpustrap.lab.manager import Lab, LabNode, NodeSpec

SETTINGS = "nvidia-smi --format=csv,noheader,nounits --query-gpu=persistence_mode,power.limit | sort -u"
pytestmark = pytest.mark.slow
PARTS = ("configure", "service")  # of the role, after the packages
TASKS = [{"ansible.builtin.import_role": {"name": "nvidia_driver", "tasks_from": part}} for part in PARTS]
PLAY = [{"hosts": "all", "gather_facts": False, "become": True, "tasks": TASKS}]


@pytest.fixture
def node(lab: Lab, node_names: Iterator[str]) -> Iterator[LabNode]:
    """A node whose driver runs, without packages; its boot takes it as it is."""
    name = next(node_names)
    yield lab.up([NodeSpec(name, "debian13", gpus="4x-rtx3090:595")])[0]
    lab.remove(name)


@pytest.fixture
def apply(node: LabNode, tmp_path: Path) -> Callable[..., str]:
    """Run what is after the packages, and give what the recap counts as changed."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    home = f"/home/{node.user}/.ssh"
    keys = f"install -d -o {node.user} -m 700 {home} && cat >{home}/authorized_keys && chown {node.user} {home}/*"
    assert node.exec(keys, stdin=(tmp_path / "key.pub").read_bytes()).returncode == 0
    known = f"-o UserKnownHostsFile={tmp_path / 'known'} -o StrictHostKeyChecking=accept-new"
    (tmp_path / "play.yml").write_text(yaml.safe_dump(PLAY))

    def run(*options: str, **variables: Any) -> str:
        host = {
            "ansible_host": node.address,
            "ansible_user": node.user,
            "ansible_become_password": node.password,
            "ansible_ssh_private_key_file": str(tmp_path / "key"),
            "ansible_ssh_common_args": known,
            "nvidia_driver_suspend": "notifiers",
            **variables,
        }
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {node.name: host}}}))
        program = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [program, "-i", tmp_path / "hosts.yml", tmp_path / "play.yml", *options],
            env=os.environ | {"ANSIBLE_CONFIG": str(ansible_config()), "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.rpartition("changed=")[2].split()[0]

    return run


def test_persistence_power_outlives_a_reboot_and_has_a_way_back(
    lab: Lab, node: LabNode, apply: Callable[..., str]
) -> None:
    addresses = node.exec("nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader").stdout.lower().split()
    limits = [{"address": address[4:], "watts": 250} for address in addresses]
    before = node.exec(SETTINGS).stdout.strip()

    assert apply("--check", nvidia_driver_power_limits=limits) == "2"
    assert node.exec(SETTINGS).stdout.strip() == before
    assert apply(nvidia_driver_power_limits=limits) == "2"
    assert node.exec(SETTINGS).stdout.strip() == "Enabled, 250.00"
    assert apply(nvidia_driver_power_limits=limits) == "0"

    lab.reboot(node.name)
    assert node.exec("systemctl is-system-running --wait").stdout.strip() == "running"
    assert node.exec(SETTINGS).stdout.strip() == "Enabled, 250.00", "set by the boot alone"

    apply()
    assert node.exec(SETTINGS).stdout.strip() == f"Enabled, {before.split()[-1]}"
    assert node.exec("cat /var/lib/gpustrap/gpu-power-limits").stdout == ""
