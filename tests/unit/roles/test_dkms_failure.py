"""Failure mode dkms-build-fail: the first errors of the log of the kernel in question, whatever its place."""

from __future__ import annotations

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_dkms as dkms
from gpustrap.ansible_plugins.module_utils.gpustrap_apt import Runner
from gpustrap.ansible_plugins.module_utils.gpustrap_driver_mend import diagnosed
from gpustrap.ansible_plugins.module_utils.gpustrap_node.driver_set import Wanted
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host

LOG = """DKMS make.log for nvidia-580.119.02 for kernel 6.17.9-76061709-generic (x86_64)
Wed Jan 14 09:00:00 UTC 2026
make: Entering directory '/usr/src/linux-headers-6.17.9'
  CC [M]  nvidia/nv.o
nvidia/nv.c: In function 'nv_open':
nvidia/nv.c:17:5: error: implicit declaration of function 'vm_flags_set'
nvidia/nv.c:19:5: error: too few arguments to function 'drm_mode'
make[3]: *** [scripts/Makefile.build:287: nvidia/nv.o] Error 1
make: *** [Makefile:234: __sub-make] Error 2
"""
NEWER = "# command: make\nDKMS (dkms-3.2.2) make.log for nvidia/580.119.02 for kernel 6.12.117+deb13-amd64 (x86_64)\n"
SANITY = "DKMS make.log for nvidia-435.27.08 for kernel 5.4.2-arch1-1 (x86_64)\nmake[2]: *** [Kbuild:181: x] Error 1\n"
SAID = "Consult /var/lib/dkms/nvidia/580.119.02/build/make.log for more information.\n"


def put(root, path, text=""):
    where = root / path.lstrip("/")
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(text)


def test_dkms_build_fail(tmp_path):
    put(tmp_path, "/var/lib/dkms/nvidia/580.119.02/build/make.log", LOG)
    [found] = dkms.failures(Host(str(tmp_path)), SAID, "580.119.02")
    assert found.kernel == "6.17.9-76061709-generic"
    assert found.errors == [
        "nvidia/nv.c:17:5: error: implicit declaration of function 'vm_flags_set'",
        "nvidia/nv.c:19:5: error: too few arguments to function 'drm_mode'",
    ]
    assert found.words == "for kernel 6.17.9-76061709-generic (/var/lib/dkms/nvidia/580.119.02/build/make.log)"


def test_log_that_nobody_named_is_found_under_every_name_of_the_module(tmp_path):
    put(tmp_path, "/var/lib/dkms/nvidia-current/550.163.01/build/make.log", LOG)
    put(tmp_path, "/var/lib/dkms/nvidia-current/535.1/build/make.log", LOG)
    [found] = dkms.failures(Host(str(tmp_path)), "E: Sub-process /usr/bin/dpkg returned 1", "550.163.01")
    assert "550.163.01" in found.log


# Debian 13's open modules on each kernel of its archive, as built on 2026-12-01; the tree's name is that of Debian's.
REAL = """DKMS (dkms-3.2.2) make.log for nvidia-current-open/550.163.01 for kernel 6.12.118+deb13-amd64 (x86_64)
# command: env NV_VERBOSE=1 make -j2 modules KERNEL_UNAME=6.12.118+deb13-amd64
  gcc-14 -Werror=implicit-function-declaration -Wno-error -c -o /var/lib/dkms/nvidia-current-open/nv-pci.o nv-pci.c
/var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia/nv-pci.c:237:9: error: too few arguments to function \
'pci_resize_resource'
make[4]: *** [Makefile.build:234: /var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia/nv-pci.o] Error 1
make: *** [Makefile:140: modules] Error 2
"""


def test_log_of_debians_open_modules(tmp_path):
    put(tmp_path, "/var/lib/dkms/nvidia-current-open/550.163.01/build/make.log", REAL)
    [found] = dkms.failures(Host(str(tmp_path)), "", "550.163.01")
    assert found.kernel == "6.12.118+deb13-amd64"
    assert len(found.errors) == 1
    assert found.errors[0].endswith("error: too few arguments to function 'pci_resize_resource'")


@pytest.mark.parametrize(
    ("text", "kernel", "errors"), [(NEWER, "6.12.117+deb13-amd64", 0), (SANITY, "5.4.2-arch1-1", 1), ("", "", 0)]
)
def test_forms_of_the_log(text, kernel, errors):
    found = dkms.failure("/l", text)
    assert (found.kernel, len(found.errors)) == (kernel, errors)


def test_kernel_moved_no_module(tmp_path):
    for kernel in ("6.1.0-30-amd64", "6.1.0-31-amd64"):
        put(tmp_path, f"/boot/vmlinuz-{kernel}")
        (tmp_path / "lib/modules" / kernel).mkdir(parents=True)
    put(tmp_path, "/boot/vmlinuz-6.1.0-99-amd64")  # its modules were removed: it cannot boot
    put(tmp_path, "/lib/modules/6.1.0-30-amd64/updates/dkms/nvidia.ko.xz")
    host = Host(str(tmp_path))
    kernels = dkms.bootable(host, "6.1.0-30-amd64")
    assert kernels == ["6.1.0-30-amd64", "6.1.0-31-amd64"]
    assert dkms.without_module(host, kernels) == ["6.1.0-31-amd64"]


@pytest.mark.parametrize(
    "module",
    [
        "updates/dkms/nvidia.ko",
        "extra/nvidia.ko.zst",
        "kernel/nvidia-595srv-open/nvidia.ko",
        "updates/dkms/nvidia-current.ko",
    ],
)
def test_module_is_found_wherever_it_is_put(tmp_path, module):
    put(tmp_path, f"/lib/modules/6.8/{module}")
    assert dkms.without_module(Host(str(tmp_path)), ["6.8", "6.9"]) == ["6.9"]


def test_a_compiler_that_is_missing_is_said(tmp_path):
    log = (
        SANITY.split("make[2]", maxsplit=1)[0] + "/bin/sh: 1: cc: not found\nmake: *** [Makefile:8: modules] Error 1\n"
    )
    put(tmp_path, "/var/lib/dkms/nvidia/595.91.07/build/make.log", log)
    [found] = dkms.failures(Host(str(tmp_path)), "", "595.91.07")
    assert found.errors[0] == "/bin/sh: 1: cc: not found"


def test_dkms_build_fail_of_somebody_elses_module_is_not_the_drivers(tmp_path):
    """A new kernel's headers have DKMS build every module: the one that fails may be a network card's."""
    put(tmp_path, "/var/lib/dkms/r8125/9.011/build/make.log", LOG.replace("nvidia-580.119.02", "r8125-9.011"))
    put(
        tmp_path,
        "/var/lib/dpkg/status",
        "Package: linux-headers-6.17\nStatus: install ok half-configured\nVersion: 1\n",
    )
    wanted = Wanted("580", "open", "dkms", {"nvidia-kernel-open-dkms": "580.119.02-1"})
    said = "Consult /var/lib/dkms/r8125/9.011/build/make.log for more information.\n"
    words = str(diagnosed(Runner(), Host(str(tmp_path)), wanted, said))
    assert "module r8125/9.011, no part of it, does not build for kernel 6.17.9-76061709-generic" in words
    assert "sudo dkms remove r8125/9.011 --all" in words
    assert "the module of driver" not in words
    assert "gpustrap_driver_branch" not in words
