"""A driver comes to a node by plain apt, as on a machine: dkms builds it, a reboot loads it (simulated)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpustrap.lab.gpus import node as gpus
from gpustrap.lab.gpus.kernel import newer
from gpustrap.lab.gpus.machine import Fault, inject
from gpustrap.lab.manager import Lab, LabNode, NodeSpec

pytestmark = pytest.mark.slow
OLD, NEW = "580.178.04", "595.71.05"
CUDA = """
import ctypes
cuda, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print(cuda.cuInit(0), cuda.cuDriverGetVersion(ctypes.byref(version)), version.value)
"""
# One update set at one version, as no metapackage of the repository gives it.
SET = (
    *("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced", "nvidia-kernel-support"),
    *("firmware-nvidia-gsp", "libcuda1", "libnvidia-ml1", "libnvidia-cfg1"),
    *("libnvidia-ptxjitcompiler1", "libnvidia-gpucomp"),
)
SOURCE = """
set -e
python3 - {base} <<'END'
import sys, urllib.request
key = urllib.request.urlopen(sys.argv[1] + "/3bf863cc.pub").read()
open("/etc/apt/keyrings/nvidia.asc", "wb").write(key)
line = "deb [signed-by=/etc/apt/keyrings/nvidia.asc] %s /\\n" % sys.argv[1]
open("/etc/apt/sources.list.d/nvidia.list", "w").write(line)
END
apt-get -q update
"""


def install(node: LabNode, version: str, *more: str) -> int:
    return apt_install(node, *more, *(f"{name}={version}-1" for name in SET))


def apt_install(node: LabNode, *words: str) -> int:
    command = f"DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends {' '.join(words)}"
    return node.exec(command, timeout=600).returncode


@pytest.fixture(scope="module")
def node(lab: Lab, node_names: Iterator[str]) -> Iterator[LabNode]:
    name = next(node_names)
    there = lab.up([NodeSpec(name, "debian12", gpus="4x-rtx3090")])[0]
    base = f"{lab.standins()['gpustrap_nvidia_repository']}/debian12/x86_64"
    done = there.exec(f"mkdir -p /etc/apt/keyrings\n{SOURCE.format(base=base)}")
    assert done.returncode == 0, done.stderr
    yield there
    lab.remove(name)


def test_a_kernel_is_there_and_its_headers_can_be_had(node: LabNode) -> None:
    assert "cannot open shared object file" in node.exec(["python3", "-c", CUDA]).stderr, "no package brought it"
    assert node.exec("test -e /boot/vmlinuz-$(uname -r) && test -e /boot/initrd.img-$(uname -r)").returncode == 0
    assert "gpustrap lab" in node.exec("apt-cache show linux-headers-$(uname -r)").stdout
    assert node.exec("test -e /lib/modules/$(uname -r)/build").returncode == 1


def test_without_headers_nothing_is_built_and_the_installation_succeeds(node: LabNode) -> None:
    assert install(node, OLD) == 0
    assert node.exec("ls /lib/modules/$(uname -r)/updates/dkms").returncode != 0
    assert node.exec("modinfo nvidia").returncode != 0


def test_headers_that_come_later_are_built_for(lab: Lab, node: LabNode) -> None:
    assert apt_install(node, "linux-headers-$(uname -r)") == 0
    assert node.exec("dkms autoinstall").returncode == 0
    assert node.exec("modinfo -F version nvidia").stdout == f"{OLD}\n"
    assert node.exec("modinfo -F license nvidia").stdout == "Dual MIT/GPL\n"
    said = node.exec("nvidia-smi")
    assert (said.returncode, "couldn't communicate with the NVIDIA driver" in said.stdout) == (9, True)
    node = lab.reboot(node.name)
    assert node.exec("nvidia-smi --query-gpu=driver_version --format=csv,noheader").stdout == f"{OLD}\n" * 4
    assert node.exec("systemctl is-active nvidia-persistenced").stdout == "active\n"
    assert set(node.exec("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").stdout.split()) == {"Enabled"}


def test_driver_lib_mismatch_until_the_reboot(lab: Lab, node: LabNode) -> None:
    assert install(node, NEW) == 0
    said = node.exec("nvidia-smi")
    assert said.returncode == 18
    assert (
        said.stdout == f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {NEW[:6]}\n"
    )
    assert OLD in node.exec("cat /proc/driver/nvidia/version").stdout
    assert node.exec(["python3", "-c", CUDA]).stdout == "804 0 13020\n", "as a GeForce board takes a newer library"
    node = lab.reboot(node.name)
    assert node.exec(["python3", "-c", CUDA]).stdout == "0 0 13020\n"
    assert NEW in node.exec("cat /proc/driver/nvidia/version").stdout
    assert node.exec("nvidia-smi").returncode == 0


def test_dkms_build_fail_leaves_the_package_half_configured(node: LabNode) -> None:
    node.exec("uname -r >/var/lib/lab-dkms-fails")
    assert install(node, OLD, "--allow-downgrades") != 0
    log = node.exec(f"cat /var/lib/dkms/nvidia/{OLD}/build/make.log").stdout
    assert "error: implicit declaration of function" in log
    assert node.exec("dpkg-query -W -f '${Status}' nvidia-kernel-open-dkms").stdout == "install ok half-configured"
    node.exec("rm /var/lib/lab-dkms-fails")
    assert node.exec("dpkg --configure -a").returncode == 0
    assert node.exec("modinfo -F version nvidia").stdout == f"{OLD}\n"


def test_kernel_moved_no_module(node: LabNode) -> None:
    kernel = newer(node.exec("uname -r").stdout.strip())
    assert apt_install(node, f"linux-image-{kernel}") == 0
    assert node.exec(f"modinfo -k {kernel} nvidia").returncode != 0
    assert apt_install(node, f"linux-headers-{kernel}") == 0
    assert node.exec(f"modinfo -k {kernel} -F version nvidia").stdout == f"{OLD}\n"  # dkms's own hook built it


def test_nouveau_bound_until_the_initramfs_knows(lab: Lab, node: LabNode) -> None:
    gpus.prepare(lab.gpus(node.name), inject(gpus.read(lab.gpus(node.name)), Fault("nouveau")))
    node = lab.reboot(node.name)
    bound = "readlink -f /sys/bus/pci/devices/0000:01:00.0/driver"
    assert node.exec(bound).stdout.endswith("/nouveau\n")
    assert node.exec("nvidia-smi").returncode == 9
    node.exec(
        "echo 'blacklist nouveau' >/etc/modprobe.d/nouveau.conf; touch -d '+1 minute' /etc/modprobe.d/nouveau.conf"
    )
    node = lab.reboot(node.name)
    assert node.exec(bound).stdout.endswith("/nouveau\n")
    node.exec("touch -d '-1 minute' /etc/modprobe.d/nouveau.conf")
    assert node.exec("update-initramfs -u -k $(uname -r)").returncode == 0
    node = lab.reboot(node.name)
    assert node.exec(bound).stdout.endswith("/nvidia\n")
    assert node.exec("nvidia-smi").returncode == 0


def test_files_of_the_driver_are_the_packages(node: LabNode) -> None:
    for path in (
        "/usr/bin/nvidia-smi",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        f"/usr/src/nvidia-{OLD}/dkms.conf",
    ):
        assert node.exec(["dpkg", "-S", path]).returncode == 0, path
