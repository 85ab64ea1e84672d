"""Which packages are the driver, and which of them cannot stay beside the locked one."""

from __future__ import annotations

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node.driver_set import Wanted, is_driver, upstream
from gpustrap.resolve.preflight.view import is_driver_package

OPEN = Wanted("595", "open", "dkms", dict.fromkeys(("nvidia-driver-cuda", "nvidia-kernel-open-dkms"), "595.91.07-1"))
PROPRIETARY = Wanted("580", "proprietary", "dkms", {"nvidia-driver-cuda": "580.178.04-1", "nvidia-kernel-dkms": "580"})
PREBUILT = Wanted(
    "595",
    "open",
    "prebuilt",
    dict.fromkeys(("nvidia-headless-no-dkms-595-server-open", "nvidia-utils-595-server"), "595"),
)
DRIVER = (
    *("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-utils-595-server", "libnvidia-compute-595", "libcuda1"),
    *("linux-modules-nvidia-595-open-generic", "cuda-drivers-580", "nvidia-fabricmanager", "nvidia-persistenced"),
    *("firmware-nvidia-gsp", "xserver-xorg-video-nvidia-580", "nvidia-headless-no-dkms-580-server", "nvidia-modprobe"),
)
OTHERS = (
    *("nvidia-container-toolkit", "libnvidia-container1", "nvidia-cuda-toolkit", "nvidia-docker2", "cuda-toolkit-13-2"),
    *("libcudnn9-cuda-13", "nvtop", "linux-headers-amd64", "dkms", "nvidia-fs-dkms"),
)


@pytest.mark.parametrize("name", DRIVER)
def test_is_a_part_of_the_driver(name):
    assert is_driver(name)


@pytest.mark.parametrize("name", OTHERS)
def test_is_no_part_of_the_driver(name):
    assert not is_driver(name)


@pytest.mark.parametrize("name", [n for n in (*DRIVER, *OTHERS) if n != "nvidia-fs-dkms"])
def test_plan_and_node_mean_the_same_packages(name):
    assert is_driver(name) == is_driver_package(name)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("595.91.07-1", "595.91.07"),
        ("5:580.95.05-0ubuntu1", "580.95.05"),
        ("20220217+3", ""),
        ("1.20.0-1", ""),
        ("6.8.0-117.117+1", ""),
    ],
)
def test_upstream_version(version, said):
    assert upstream(version) == said


@pytest.mark.parametrize(
    ("wanted", "name", "why"),
    [
        (OPEN, "nvidia-kernel-open-dkms", ""),
        (OPEN, "libcuda1", ""),
        (OPEN, "nvidia-driver", ""),
        (OPEN, "nvidia-open", ""),
        (OPEN, "nvidia-kernel-dkms", "proprietary"),
        (OPEN, "nvidia-dkms-595", "proprietary"),
        (OPEN, "cuda-drivers", "proprietary"),
        (OPEN, "nvidia-utils-580", "branch 580"),
        (OPEN, "nvidia-legacy-390xx-driver", "branch 390"),
        (OPEN, "nvidia-driver-pinning-580", "pins another way"),
        (OPEN, "nvidia-driver-pinning-595.91.07", "pins another way"),
        (OPEN, "nvidia-headless-no-dkms-595-open", ""),
        (PROPRIETARY, "nvidia-kernel-open-dkms", "open flavour"),
        (PROPRIETARY, "nvidia-open", "open flavour"),
        (PROPRIETARY, "cuda-drivers", ""),
        (PREBUILT, "linux-modules-nvidia-595-server-open-generic", ""),
        (PREBUILT, "linux-modules-nvidia-595-server-open-6.8.0-117-generic", ""),
        (PREBUILT, "linux-modules-nvidia-595-server-generic", "proprietary"),
        (PREBUILT, "linux-modules-nvidia-595-open-generic", "another series"),
        (PREBUILT, "linux-modules-nvidia-580-server-open-generic", "branch 580"),
        (PREBUILT, "nvidia-dkms-595-server-open", "another kind"),
    ],
)
def test_in_the_way(wanted, name, why):
    said = wanted.in_the_way(name)
    assert why in said
    assert bool(said) == bool(why)
