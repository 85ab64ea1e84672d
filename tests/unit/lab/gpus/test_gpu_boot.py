"""What a node's boot makes of its GPUs: the module on disk runs, and only after the boot."""

import os
import subprocess
import sys

import pytest

from gpustrap.lab.gpus import boot, build, state
from gpustrap.lab.gpus import machine as gpus
from gpustrap.lab.gpus.machine import Fault, inject
from gpustrap.lab.standins import nvidia_driver_files
from gpustrap.lab.standins.nvidia_data import packages

KERNEL = "6.12.43+deb13-amd64"


@pytest.fixture
def node(tmp_path):
    (tmp_path / "here").mkdir()
    boot.lay(tmp_path / "here", gpus.machine("4x-rtx3090"))
    return tmp_path


def built(node, package, kernel=KERNEL):
    """Build the modules of a stand-in package as dkms would."""
    source = node / "source"
    for path, kind in package.files.items():
        if "usr/src" in path:
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(nvidia_driver_files.KINDS[kind](package).content)
    (where,) = (source / "usr/src").iterdir()
    done = subprocess.run(["make", f"KERNEL_UNAME={kernel}", "modules"], cwd=where, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    target = node / "lib/modules" / kernel / "updates/dkms"
    target.mkdir(parents=True)
    for path in where.glob("*.ko"):
        path.rename(target / path.name)


def package(name, version):
    return next(one for one in packages("debian12") if (one.name, one.version) == (name, version))


@pytest.mark.parametrize(
    ("name", "version", "flavour", "count"),
    [
        ("nvidia-kernel-open-dkms", "580.178.04-1", "open", 4),
        ("nvidia-kernel-dkms", "595.71.05-1", "proprietary", 4),
    ],
)
def test_the_module_on_disk_runs(node, name, version, flavour, count):
    built(node, package(name, version))
    there = boot.boot(node / "here", node, KERNEL)
    upstream = version.removesuffix("-1")
    assert (there.driver.module, there.driver.library, there.driver.flavour) == (upstream, upstream, flavour)
    assert len(there.bound()) == count
    assert upstream in (node / "here/proc/driver/nvidia/version").read_text()
    assert len(list((node / "here/sys/devices").rglob("driver"))) >= count
    assert state.parse((node / "here/state").read_text()) == there


def test_fabric_of_a_packages_driver_waits_for_its_manager(node):
    boot.lay(node / "here", gpus.machine("8x-h100-sxm", gpus.driver("570")))
    boot.boot(node / "here", node, KERNEL)
    assert "3.fabric=Completed\n" in (node / "here/state").read_text(), "the driver that it was started with"
    built(node, package("nvidia-kernel-open-dkms", "580.178.04-1"))
    boot.boot(node / "here", node, KERNEL)
    assert "3.fabric=In Progress\n" in (node / "here/state").read_text()


def test_a_module_of_another_kernel_does_not_run(node):
    built(node, package("nvidia-kernel-open-dkms", "580.178.04-1"), "6.12.44+deb13-amd64")
    assert boot.boot(node / "here", node, KERNEL).driver is None
    assert not (node / "here/proc/driver/nvidia").exists()


def test_without_a_module_a_machine_keeps_the_driver_it_was_started_with(node):
    boot.lay(node / "here", gpus.machine("1x-t4", gpus.driver("570")))
    assert boot.boot(node / "here", node, KERNEL).driver == gpus.driver("570")
    built(node, package("nvidia-kernel-open-dkms", "595.71.05-1"))
    assert boot.boot(node / "here", node, KERNEL).driver.module == "595.71.05"


def test_nouveau_takes_the_gpus_until_the_initramfs_knows_the_blacklist(node):
    built(node, package("nvidia-kernel-open-dkms", "580.178.04-1"))
    boot.lay(node / "here", inject(gpus.machine("4x-rtx3090"), Fault("nouveau")))
    there = boot.boot(node / "here", node, KERNEL)
    assert (there.driver, there.nouveau) == (None, True)
    links = [path.readlink().name for path in (node / "here/sys/devices").rglob("driver")]
    assert links.count("nouveau") == 4

    conf = node / "etc/modprobe.d/ours.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("# blacklist nouveau\n")
    assert boot.boot(node / "here", node, KERNEL).nouveau
    conf.write_text("blacklist nouveau\n")
    initramfs = node / "boot" / f"initrd.img-{KERNEL}"
    initramfs.parent.mkdir()
    initramfs.write_text("")
    os.utime(initramfs, (1, 1))
    assert boot.boot(node / "here", node, KERNEL).nouveau
    os.utime(initramfs)
    there = boot.boot(node / "here", node, KERNEL)
    assert (there.driver.module, there.nouveau) == ("580.178.04", False)


def test_the_program_needs_nothing_but_python(tmp_path):
    program = build.boot(tmp_path / "lab-gpu-boot", sys.executable)
    done = subprocess.run([sys.executable, "-I", "-S", str(program)], capture_output=True, text=True, check=False)
    # There is no state here; everything else was found.
    assert "No such file or directory: '/run/lab-gpu/state'" in done.stderr
    asks = f"import sys; sys.path.insert(0, {str(program)!r})\n"
    asks += "from gpustrap.lab.gpus.machine import data\nprint(data('boards'))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", asks], capture_output=True, text=True, check=False)
    assert done.stdout == f"{gpus.data('boards')}\n"


def test_a_version_between_two_branches_has_the_cuda_of_the_one_before():
    assert gpus.driver_of("585.10.01", "open").cuda == gpus.driver("580").cuda
    assert gpus.driver_of("450.51.06", "open").cuda == gpus.driver("515").cuda
    assert gpus.driver_of("580.178.04", "open") == gpus.driver("580")
