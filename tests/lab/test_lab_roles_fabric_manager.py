"""Role nvidia_fabric_manager on a real node with simulated NVSwitches: the fabric comes up, or says why not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.lab.gpus.machine import driver
from gpustrap.lab.manager import LabNode, NodeSpec

pytestmark = pytest.mark.slow
LOADED = driver("595").module
UNIT = "nvidia-fabricmanager.service"
STATES = "nvidia-smi --query-gpu=fabric.state --format=csv,noheader"


@dataclass
class Target:
    """A node that site.yml can be run on, with its variables."""

    node: LabNode
    directory: Path
    ansible: Callable[..., Any]

    def play(self, version: str = LOADED, *options: str) -> Any:
        known = self.directory / "known"
        host = {
            "ansible_host": self.node.address,
            "ansible_user": self.node.user,
            "ansible_become_password": self.node.password,
            "ansible_ssh_private_key_file": str(self.directory / "key"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={known} -o StrictHostKeyChecking=accept-new",
            "gpustrap_roles": ["nvidia_fabric_manager"],
            "nvidia_fabric_manager_packages": [
                {"name": "nvidia-fabricmanager", "version": f"{version}-1"},
                {"name": "libnvidia-nscq", "version": f"{version}-1"},
            ],
            "nvidia_fabric_manager_services": [UNIT],
            "nvidia_fabric_manager_driver": version,
        }
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {self.node.name: host}}}))
        return self.ansible(inventory, *options)

    def sh(self, command: str, *, stdin: bytes | None = None, rc: int = 0) -> str:
        done = self.node.exec(command, stdin=stdin)
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def hgx(lab, play_site, tmp_path_factory) -> Iterator[Target]:
    """Debian 13 on HGX H100, whose driver runs and whose fabric nobody has brought up; NVIDIA's repository is known."""
    standins = lab.standins()
    [node] = lab.up([NodeSpec("hgx", "debian13", gpus="8x-h100-sxm:595")])
    made = Target(node, tmp_path_factory.mktemp("hgx"), play_site)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made.directory / "key"], check=True)
    home = f"/home/{node.user}/.ssh"
    made.sh(
        f"install -d -o {node.user} -m 700 {home} && cat >{home}/authorized_keys && chown {node.user} {home}/*",
        stdin=(made.directory / "key.pub").read_bytes(),
    )
    uri = f"{standins['gpustrap_nvidia_repository']}/debian13/x86_64"
    made.sh(f"echo 'deb [trusted=yes] {uri} /' >/etc/apt/sources.list.d/cuda.list && apt-get -qq update")
    made.sh("sed -i 's/^\\([0-9]*\\.fabric\\)=.*/\\1=In Progress/' /run/lab-gpu/state")
    yield made
    lab.remove("hgx")


def test_fabricmanager_mismatch_another_driver_is_loaded(hgx):
    """Its unit is left alone until the reboot; started by hand, it says so in NVIDIA's words."""
    waits = hgx.play("590.48.01")
    assert waits.rc == 0, waits.text
    assert f"driver {LOADED} is loaded, and 590.48.01 is installed" in " ".join(waits.text.split())
    assert hgx.sh(f"systemctl is-active {UNIT}", rc=3) == "inactive"
    said = f"interface version 590.48.01 don't match with driver version {LOADED}"
    assert said in hgx.sh("nv-fabricmanager -c x 2>&1", rc=1)
    assert set(hgx.sh(STATES).splitlines()) == {"In Progress"}


def test_fabric_manager_of_the_drivers_version_brings_the_fabric_up(hgx):
    first = hgx.play()
    assert first.rc == 0, first.text
    assert hgx.sh(f"systemctl is-active {UNIT}") == "active"
    assert hgx.sh(f"systemctl is-enabled {UNIT}") == "enabled"
    assert hgx.sh("dpkg-query -W -f '${Version}' nvidia-fabricmanager") == f"{LOADED}-1"
    assert hgx.sh(STATES).splitlines() == ["Completed"] * 8
    again = hgx.play()
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text


def test_fabric_comes_up_again_after_a_reboot(hgx, lab):
    lab.reboot("hgx")
    assert hgx.sh(f"systemctl is-active {UNIT}") == "active"
    assert hgx.sh(STATES).splitlines() == ["Completed"] * 8
