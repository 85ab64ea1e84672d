"""Role nvidia_driver on real nodes with simulated GPUs: packages, apt, dpkg and dkms are the real ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.lab.manager import Lab, LabNode, NodeSpec

pytestmark = pytest.mark.slow

OLD, NEW = "580.178.04", "595.71.05"
FAILS = "/var/lib/lab-dkms-fails"
PREFERENCES = "/etc/apt/preferences.d/gpustrap-nvidia-driver"
DRIVER_VERSIONS = (
    "dpkg-query -W -f '${db:Status-Status} ${binary:Package} ${Version}\\n' '*nvidia*' libcuda1 | sed -n 's/^installed //p'"
)


def variables(standins: dict[str, Any], system: str, version: str, flavour: str = "open") -> dict[str, Any]:
    """What plan writes for NVIDIA's repository."""
    uri = f"{standins['gpustrap_nvidia_repository']}/{system}/x86_64"
    fingerprints = standins["gpustrap_nvidia_key_fingerprints"]
    module = {"open": "nvidia-kernel-open-dkms", "proprietary": "nvidia-kernel-dkms"}[flavour]
    key = {"debian12": "3bf863cc", "debian13": "8793F200"}[system]
    return {
        "gpustrap_roles": ["nvidia_driver"],
        "nvidia_driver_branch": version[:3],
        "nvidia_driver_version": version,
        "nvidia_driver_package_version": f"{version}-1",
        "nvidia_driver_flavour": flavour,
        "nvidia_driver_origin": "nvidia",
        "nvidia_driver_module": "dkms",
        "nvidia_driver_packages": [{"name": n, "version": f"{version}-1"} for n in ("nvidia-driver-cuda", module)],
        "nvidia_driver_kernel_packages": [{"name": "linux-headers-{kernel}", "version": ""}],
        "nvidia_driver_pin": "preferences",
        "nvidia_driver_repository": {"uri": uri, "suite": "/", "components": [], "architectures": ["amd64"]},
        "nvidia_driver_key": {"url": f"{uri}/{key}.pub", "fingerprints": _of(fingerprints, system)},
    }


def _of(fingerprints: Any, system: str) -> list[str]:
    return list(fingerprints[system] if isinstance(fingerprints, dict) else fingerprints)


@dataclass
class Target:
    """A node that site.yml can be run on, with its variables."""

    lab: Lab
    node: LabNode
    directory: Path
    ansible: Callable[..., Any]
    standins: dict[str, Any]
    system: str

    def play(self, version: str, *options: str, flavour: str = "open", **changed: Any) -> Any:
        """Run site.yml as root by way of the node's sudo, for a driver."""
        host = {
            "ansible_host": self.node.address,
            "ansible_user": self.node.user,
            "ansible_become_password": self.node.password,
            "ansible_ssh_private_key_file": str(self.directory / "key"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.directory}/known -o StrictHostKeyChecking=accept-new",
            **variables(self.standins, self.system, version, flavour),
            **changed,
        }
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {self.node.name: host}}}))
        return self.ansible(inventory, *options)

    def sh(self, command: str, *, stdin: bytes | None = None, rc: int = 0) -> str:
        done = self.node.exec(command, stdin=stdin)
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout.strip()

    @property
    def packages(self) -> dict[str, str]:
        """The installed parts of the driver, and their versions."""
        return dict(line.split() for line in self.sh(DRIVER_VERSIONS).splitlines())

    @property
    def module(self) -> str:
        """Version and licence of the module that the next boot loads."""
        return self.sh("modinfo -F version nvidia; modinfo -F license nvidia").replace("\n", ", ")

    def healthy(self) -> bool:
        """Whether apt and dpkg have nothing to complain about."""
        return self.sh("dpkg --audit; apt-get check -qq") == ""


def target(lab: Lab, ansible: Callable[..., Any], directory: Path, name: str, system: str) -> Target:
    standins = lab.standins()
    [node] = lab.up([NodeSpec(name, system, gpus="4x-rtx3090")])
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True)
    made = Target(lab, node, directory, ansible, standins, system)
    home = f"/home/{node.user}/.ssh"
    made.sh(
        f"install -d -o {node.user} -m 700 {home} && cat >{home}/authorized_keys && chown {node.user} {home}/*",
        stdin=(directory / "key.pub").read_bytes(),
    )
    return made
