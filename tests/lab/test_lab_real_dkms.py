"""Real parts, no stand-ins: Debian 13's own open kernel modules, built by its DKMS and signed, and its own nvidia-smi.

An hour on two cores. The modules are built for the archive's kernel, not for this machine's; nothing can load them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_dkms
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host
from gpustrap.commands.enroll import Terms, enroll_nodes
from gpustrap.lab import inventory
from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.model.node import Secrets
from gpustrap.model.site import Site
from gpustrap.site.inventory import load_nodes

pytestmark = [pytest.mark.slow, pytest.mark.big]

TREE = "/usr/src/nvidia-current-open-*"
INSTALL = """export DEBIAN_FRONTEND=noninteractive
sed -i 's/^Components: main.*/Components: main contrib non-free non-free-firmware/' /etc/apt/sources.list.d/*.sources
apt-get -q update && apt-get -q -y install --no-install-recommends linux-headers-amd64 dkms \
    nvidia-open-kernel-dkms nvidia-smi 2>&1"""
# Debian's kernels have a later kernel's form of this function, with one argument more; 550.163.01-2 calls the old one.
MEND = f"""
header=$(ls -d /usr/src/linux-headers-*-common | tail -1)/include/linux/pci.h
grep -A1 'pci_resize_resource(' "$header" | grep -q exclude_bars || exit 1
sed -i 's/\\(pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size\\))/\\1, 0)/' {TREE}/nvidia/nv-pci.c
DEBIAN_FRONTEND=noninteractive dpkg --configure -a 2>&1"""


@dataclass(frozen=True)
class Built:
    """A node after the build.

    Attributes:
        first: What apt said of the package as it comes.
        log: The make.log of that, where it failed.
        mended: What dpkg said after the source was mended; None where the package was right as it came.
    """

    node: LabNode
    first: subprocess.CompletedProcess[str]
    log: str
    mended: subprocess.CompletedProcess[str] | None

    def sh(self, command: str) -> str:
        done = self.node.exec(command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def built(lab: Lab) -> Iterator[Built]:
    """A node with simulated GPUs on its bus, and no driver but Debian's own."""
    [node] = lab.up([NodeSpec("real-dkms", "debian13", gpus="4x-rtx3090")])
    first = node.exec(INSTALL, timeout=7200)
    log, mended = "", None
    if first.returncode != 0:
        log = node.exec("cat /var/lib/dkms/*/*/build/make.log").stdout
        mended = node.exec(MEND, timeout=7200)
    yield Built(node, first, log, mended)
    lab.remove(node.name)


def test_dkms_build_fail_is_diagnosed_where_the_archives_package_does_not_build(built: Built, tmp_path: Path) -> None:
    if built.mended is None:
        pytest.skip("the archive's package builds for the archive's kernel as it comes")
    [where] = set(re.findall(r"/var/lib/dkms/\S+?/make\.log", built.first.stdout))
    copy = tmp_path / where.lstrip("/")
    copy.parent.mkdir(parents=True)
    copy.write_text(built.log)
    [found] = gpustrap_dkms.failures(Host(str(tmp_path)), built.first.stdout, "")
    assert "error: too few arguments to function 'pci_resize_resource'" in found.errors[0]
    assert found.kernel.endswith("+deb13-amd64")


def test_module_is_built_for_the_archives_kernel_and_signed_by_the_generated_key(built: Built) -> None:
    last = built.mended or built.first
    assert last.returncode == 0, last.stdout[-3000:]
    kernel = built.sh("basename /lib/modules/*+deb13-amd64")
    assert kernel != built.sh("uname -r")
    assert f"{kernel}, x86_64: installed" in built.sh("dkms status")
    module = built.sh(f"ls /lib/modules/{kernel}/updates/dkms/nvidia-current-open.ko*")
    assert built.sh(f"modinfo -F license {module}") == "Dual MIT/GPL"
    assert built.sh(f"modinfo -F version {module}") == "550.163.01"
    assert built.sh(f"modinfo -F vermagic {module}").startswith(f"{kernel} ")
    signer = built.sh(f"modinfo -F signer {module}")
    assert signer
    assert signer in built.sh("openssl x509 -inform DER -in /var/lib/dkms/mok.pub -noout -subject")
    assert built.sh("stat -c %a /var/lib/dkms/mok.key") == "600"


def verb(site: Site, *words: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "gpustrap", *words, "--site", str(site.root), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_real_nvidia_smi_fails_and_verify_says_that_the_driver_is_not_loaded(built: Built, tmp_path: Path) -> None:
    smi = built.node.exec("nvidia-smi")
    assert (smi.returncode, "couldn't communicate with the NVIDIA driver" in smi.stdout) == (9, True)

    site = Site(tmp_path / "site")
    inventory.write(site, [built.node])
    variables = site.root / "inventory/group_vars/all.yml"
    variables.parent.mkdir(parents=True, exist_ok=True)
    variables.write_text("gpustrap_docker: false\ngpustrap_conda: false\ngpustrap_environments: []\n")
    secrets = Secrets(ssh_password=built.node.password, become_password=built.node.password)
    enroll_nodes(site, load_nodes(site), secrets=secrets, terms=Terms(accept_new=True, passwordless_sudo=True))
    code, plan = verb(site, "plan")
    assert code in (0, 11), plan
    code, answer = verb(site, "verify")
    assert code == 12, answer
    [check] = [c for c in find_checks(answer) if c["id"] == "driver-loaded"]
    assert check["verdict"] == "fail"
    assert check["reason"].startswith("the driver is not loaded: kernel ")
    assert "couldn't communicate with the NVIDIA driver" in check["evidence"]
    assert check["remedy"] == f"gpustrap apply {built.node.name}"


def find_checks(data: Any) -> list[dict[str, Any]]:
    """Every check in an answer, wherever it stands."""
    if isinstance(data, dict):
        return ([data] if "verdict" in data and "id" in data else []) + find_checks(list(data.values()))
    return [check for one in data for check in find_checks(one)] if isinstance(data, list) else []
