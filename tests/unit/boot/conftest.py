"""Fake roots of machines on their way to a reboot: kernels, module files as ELF, libraries, EFI variables."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import facts, mok
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host
from gpustrap.model.facts import Facts

CASES = Path(__file__).parents[2] / "cases" / "boot"
CERTIFICATE = (CASES / "mok.der").read_bytes()  # CN=DKMS module signing key, as dkms makes it
SIGNATURE = (CASES / "signature.p7s").read_bytes()  # made with it by openssl cms, as the kernel's sign-file does
SERIAL = "61d3cf51fd319cbb393315bd6df43d1ea36d63fc"
MARK = b"~Module signature appended~\n"
LICENSES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
OLD, NEW = "6.12.41+deb13-amd64", "6.12.48+deb13-amd64"
YESTERDAY, TODAY = 1_700_000_000, 1_700_086_400


def elf(values: dict[str, str], *, signed: bool = False) -> bytes:
    """A relocatable ELF file with a section .modinfo, between others."""
    modinfo = b"".join(f"{key}={value}".encode() + b"\0" for key, value in values.items())
    names = b"\0.text\0.modinfo\0.shstrtab\0"
    parts = [(1, b"\x90" * 100), (names.index(b".modinfo"), modinfo), (names.index(b".shstrtab"), names)]
    body, headers = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, content in parts:
        headers += struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0)
        body += content
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 4, 3)
    )
    trailer = SIGNATURE + struct.pack(">BBBBBxxxI", 0, 0, 2, 0, 0, len(SIGNATURE)) + MARK if signed else b""
    return head + body + headers + trailer


class Tree:
    """A machine below a directory; every method adds to it, and `facts` is what the probe reads there."""

    certificate = CERTIFICATE

    def __init__(self, root: Path) -> None:
        self.root = root
        self.text("etc/os-release", "ID=debian\nVERSION_ID=13\n")
        self.text("proc/sys/kernel/random/boot_id", "11111111-1111-4111-8111-111111111111\n")
        self.text("proc/cmdline", "root=/dev/sda1 quiet\n")
        self.text("proc/cpuinfo", "processor : 0\n")
        self.running(OLD)
        self.gpu()

    def path(self, path: str) -> Path:
        made = self.root / path
        made.parent.mkdir(parents=True, exist_ok=True)
        return made

    def text(self, path: str, text: str, at: int = TODAY) -> None:
        self.raw(path, text.encode(), at)

    def raw(self, path: str, content: bytes, at: int = TODAY) -> None:
        made = self.path(path)
        made.write_bytes(content)
        os.utime(made, (at, at))

    def running(self, release: str) -> None:
        self.text("proc/sys/kernel/osrelease", release + "\n")

    def kernel(self, release: str, *, headers: bool = True, nouveau: bool = False, initrd: int = TODAY) -> None:
        self.text(f"boot/vmlinuz-{release}", "")
        self.text(f"boot/initrd.img-{release}", "", at=initrd)
        listed = "kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz:\n" if nouveau else ""
        self.text(f"lib/modules/{release}/modules.dep", listed)
        if headers:
            self.text(f"lib/modules/{release}/build/Makefile", "")

    def module(
        self,
        release: str,
        version: str,
        flavour: str = "open",
        *,
        path: str = "updates/dkms/nvidia.ko",
        built_for: str = "",
        signed: bool = False,
        pack: Callable[[bytes], bytes] = bytes,
    ) -> None:
        values = {
            "version": version,
            "license": LICENSES[flavour],
            "vermagic": f"{built_for or release} SMP preempt mod_unload modversions ",
        }
        self.raw(f"lib/modules/{release}/{path}", pack(elf(values, signed=signed)))

    def loaded(self, version: str, flavour: str = "open") -> None:
        kind = "NVIDIA UNIX Open Kernel Module for x86_64" if flavour == "open" else "NVIDIA UNIX x86_64 Kernel Module"
        self.text("proc/driver/nvidia/version", f"NVRM version: {kind}  {version}  Release Build\n")

    def library(self, version: str, directory: str = "usr/lib/x86_64-linux-gnu") -> None:
        self.text(f"{directory}/libnvidia-ml.so.{version}", "")
        link = self.path(f"{directory}/libnvidia-ml.so.1")
        link.unlink(missing_ok=True)
        link.symlink_to(f"libnvidia-ml.so.{version}")

    def gpu(self, driver: str = "") -> None:
        device = "sys/bus/pci/devices/0000:01:00.0"
        for name, value in {"vendor": "0x10de", "device": "0x2204", "class": "0x030000"}.items():
            self.text(f"{device}/{name}", value + "\n")
        link = self.path(f"{device}/driver")
        link.unlink(missing_ok=True)
        if driver:
            link.symlink_to(f"../../../bus/pci/drivers/{driver}")

    def blacklist(self, name: str = "nouveau", at: int = YESTERDAY) -> None:
        self.text(f"etc/modprobe.d/blacklist-{name}.conf", f"blacklist {name}\noptions {name} modeset=0\n", at=at)

    def secure_boot(self, *, on: bool = True, enrolled: bool = False, requested: bool = False) -> None:
        """As efivarfs shows it: four bytes of attributes, then the value."""
        self.raw(mok.EFIVARS.lstrip("/") + "/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", bytes([6, 0, 0, 0, on]))
        self.raw("var/lib/dkms/mok.pub", CERTIFICATE)
        shim = f"{mok.EFIVARS.lstrip('/')}/%s-{mok.SHIM}"
        if enrolled:
            self.raw(shim % "MokListRT", bytes(4) + b"list header " + CERTIFICATE)
        if requested:
            self.raw(shim % "MokNew", bytes(4) + CERTIFICATE)

    def facts(self) -> Facts:
        return Facts.model_validate(facts.collect_boot(self.host()))

    def host(self) -> Host:
        return Host(str(self.root))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A machine with one NVIDIA GPU and without a driver."""
    return Tree(tmp_path / "root")


@pytest.fixture
def healthy(tree: Tree) -> Tree:
    """Driver 595 loaded, on disk and in user space; nouveau blacklisted before the initramfs was made."""
    tree.kernel(OLD, nouveau=True)
    tree.module(OLD, "595.91.07")
    tree.library("595.91.07")
    tree.loaded("595.91.07")
    tree.gpu("nvidia")
    tree.blacklist()
    return tree
