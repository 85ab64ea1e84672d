"""Role nvidia_driver on real nodes with simulated GPUs: packages, apt, dpkg and dkms are the real ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.content import ansible_config, content_root
from gpustrap.lab.gpus.kernel import newer
from gpustrap.lab.manager import Lab, LabNode, NodeSpec

pytestmark = pytest.mark.slow

OLD, NEW = "580.178.04", "595.71.05"
FAILS = "/var/lib/lab-dkms-fails"
PREFERENCES = "/etc/apt/preferences.d/gpustrap-nvidia-driver"
PARTS = (
    "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' '*nvidia*' libcuda1 | sed -n 's/^installed //p'"
)
# The role alone: what reboots a node and asks for it are site.yml's.
PLAY = "- {hosts: all, gather_facts: false, become: true, roles: [nvidia_driver]}"
FOREIGN = """set -e
mkdir -p /srv/foreign/b/DEBIAN && cd /srv/foreign
for name in libcuda1 nvidia-kernel-open-dkms nvidia-driver-cuda libnvidia-ml1; do
    printf '%s\\n' "Package: $name" 'Version: 999.1.1-1' 'Architecture: amd64' 'Maintainer: x <x@y>' 'Description: x' \\
        >b/DEBIAN/control
    dpkg-deb -b b $name.deb >/dev/null
done
for deb in *.deb; do
    dpkg-deb -f $deb
    printf 'Filename: ./%s\\nSize: %s\\nSHA256: %s\\n\\n' $deb $(stat -c %s $deb) $(sha256sum <$deb | cut -d' ' -f1)
done >Packages
echo 'deb [trusted=yes] file:/srv/foreign ./' >/etc/apt/sources.list.d/foreign.list
apt-get -qq update
"""


@dataclass(frozen=True)
class Played:
    """How a run of the role ended."""

    rc: int
    changed: int
    text: str


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
    standins: dict[str, Any]
    system: str

    def play(self, version: str, *options: str, flavour: str = "open", **changed: Any) -> Played:
        """Run the role as root by way of the node's sudo, for a driver."""
        host = {
            "ansible_host": self.node.address,
            "ansible_user": self.node.user,
            "ansible_become_password": self.node.password,
            "ansible_ssh_private_key_file": str(self.directory / "key"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.directory}/known -o ControlMaster=no "
            "-o StrictHostKeyChecking=accept-new",
            **variables(self.standins, self.system, version, flavour),
            **changed,
        }
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {self.node.name: host}}}))
        playbook = self.directory / "play.yml"
        playbook.write_text(PLAY)
        environment = os.environ | {
            "ANSIBLE_CONFIG": str(ansible_config()),
            "ANSIBLE_ROLES_PATH": str(content_root() / "roles"),
            "ANSIBLE_NOCOLOR": "1",
        }
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        argv = [program, f"--inventory={inventory}", str(playbook), *options]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=1500)
        changed_tasks = re.search(r"changed=(\d+)", done.stdout.rpartition("PLAY RECAP")[2])
        return Played(done.returncode, int(changed_tasks[1]) if changed_tasks else -1, done.stdout + done.stderr)

    def sh(self, command: str, *, stdin: bytes | None = None, rc: int = 0) -> str:
        done = self.node.exec(command, stdin=stdin)
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout.strip()

    @property
    def packages(self) -> dict[str, str]:
        """The installed parts of the driver, and their versions."""
        return dict(line.split() for line in self.sh(PARTS).splitlines())

    @property
    def module(self) -> str:
        """Version and licence of the module that the next boot loads."""
        return self.sh("modinfo -F version nvidia; modinfo -F license nvidia").replace("\n", ", ")

    def healthy(self) -> bool:
        """Whether apt and dpkg have nothing to complain about."""
        done = self.node.exec("dpkg --audit && apt-get check -qq")
        return (done.returncode, done.stdout) == (0, "")


def target(lab: Lab, directory: Path, name: str, system: str) -> Target:
    standins = lab.standins()
    [node] = lab.up([NodeSpec(name, system, gpus="4x-rtx3090")])
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True)
    made = Target(lab, node, directory, standins, system)
    home = f"/home/{node.user}/.ssh"
    made.sh(
        f"install -d -o {node.user} -m 700 {home} && cat >{home}/authorized_keys && chown {node.user} {home}/*",
        stdin=(directory / "key.pub").read_bytes(),
    )
    return made


@pytest.fixture(scope="module")
def there(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Debian 12, of which NVIDIA's repository has several branches; the tests below follow each other on it."""
    made = target(lab, tmp_path_factory.mktemp("driver"), "driver", "debian12")
    yield made
    lab.remove("driver")


def all_at(node: Target, version: str) -> bool:
    return set(node.packages.values()) == {f"{version}-1"} and node.healthy()


def test_check_mode_on_a_bare_node(there):
    checked = there.play(OLD, "--check", "--diff")
    assert checked.rc == 0, checked.text
    assert f"would follow: install nvidia-driver-cuda={OLD}-1 nvidia-kernel-open-dkms={OLD}-1" in checked.text
    assert there.packages == {}
    assert there.sh(f"ls {PREFERENCES} /etc/apt/sources.list.d/gpustrap-nvidia.sources", rc=2) == ""


def test_runfile_leftover_is_refused_with_its_files(there):
    there.sh("touch /usr/bin/nvidia-uninstall")
    refused = there.play(OLD)
    assert refused.rc == 2
    assert "/usr/bin/nvidia-uninstall" in refused.text
    assert "sudo nvidia-uninstall" in refused.text
    there.sh("rm /usr/bin/nvidia-uninstall; test ! -e /etc/apt/sources.list.d/gpustrap-nvidia.sources")


def test_fresh_node_gets_exactly_the_locked_driver_and_a_second_run_changes_nothing(there):
    first = there.play(OLD)
    assert first.rc == 0, first.text
    assert all_at(there, OLD), there.packages
    assert there.module == f"{OLD}, Dual MIT/GPL"
    again = there.play(OLD)
    assert (again.rc, again.changed) == (0, 0), again.text


def test_foreign_repository_with_the_same_packages_is_never_taken(there):
    there.sh(FOREIGN)
    assert "Candidate: 580.178.04-1" in there.sh("apt-cache policy libcuda1")
    assert "999" not in there.sh("apt-get -s dist-upgrade")
    upgraded = there.play(NEW)
    assert upgraded.rc == 0, upgraded.text
    assert all_at(there, NEW), there.packages
    assert there.module == f"{NEW}, Dual MIT/GPL"
    there.sh("rm -r /srv/foreign /etc/apt/sources.list.d/foreign.list; apt-get -qq update")


def test_users_of_the_gpus_and_somebodys_hold_are_respected(there):
    there.sh(
        "apt-mark hold libcuda1; touch /dev/nvidia0; (setsid sh -c 'exec sleep 3001 9</dev/nvidia0' >/dev/null 2>&1 &)"
    )
    refused = there.play(OLD)
    assert refused.rc == 2
    assert "(root: sleep 3001)" in refused.text
    held = there.play(OLD, nvidia_driver_gpu_users="allow")
    assert held.rc == 2
    assert "sudo apt-mark unhold libcuda1" in held.text
    assert all_at(there, NEW), there.packages
    there.sh("apt-mark unhold libcuda1; kill $(pgrep -xf 'sleep 3001')")


def test_dkms_build_fail_is_explained_and_dpkg_left_healthy(there):
    there.sh(f"echo all >{FAILS}")
    failed = there.play(OLD)
    assert failed.rc == 2
    kernel = there.sh("uname -r")
    assert f"the module of driver {OLD} does not build for kernel {kernel} (/var/lib/dkms/nvidia/{OLD}" in failed.text
    assert "nv-mmap.c:321:9: error: implicit declaration" in failed.text
    assert there.healthy()
    there.sh(f"rm {FAILS}")
    mended = there.play(OLD)
    assert mended.rc == 0, mended.text
    assert all_at(there, OLD), there.packages


def test_flavour_switch_from_a_half_configured_dpkg(there):
    there.sh(f"echo all >{FAILS}")
    install = "apt-get -qq -y -o APT::Sandbox::User=root install --reinstall nvidia-kernel-open-dkms"
    there.sh(f"DEBIAN_FRONTEND=noninteractive {install} >/dev/null 2>&1", rc=100)
    assert not there.healthy()
    there.sh(f"rm {FAILS}")
    switched = there.play(OLD, flavour="proprietary")
    assert switched.rc == 0, switched.text
    assert all_at(there, OLD), there.packages
    assert "nvidia-kernel-open-dkms" not in there.packages
    assert there.module == f"{OLD}, NVIDIA"


def test_module_is_built_for_a_kernel_that_came_by_itself(there):
    kernel = newer(there.sh("uname -r"))
    there.sh(f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y install linux-image-{kernel} >/dev/null 2>&1")
    moved = there.play(OLD, flavour="proprietary")
    assert moved.rc == 0, moved.text
    assert there.sh(f"modinfo -k {kernel} -F version nvidia") == OLD
