"""What the probe reads of the next boot."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import boot, der, kmod, mok
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Completed, Host

OLD, NEW = "6.12.41+deb13-amd64", "6.12.48+deb13-amd64"
SERIAL = "61d3cf51fd319cbb393315bd6df43d1ea36d63fc"


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)])
def test_a_module_file_is_read_packed_or_not(tree, suffix, pack):
    tree.module(OLD, "595.91.07", "proprietary", path=f"updates/dkms/nvidia.ko{suffix}", signed=True, pack=pack)
    found = kmod.read_module(tree.host(), f"/lib/modules/{OLD}/updates/dkms/nvidia.ko{suffix}")
    assert found == kmod.Module(
        "595.91.07", "NVIDIA", f"{OLD} SMP preempt mod_unload modversions ", "DKMS module signing key", SERIAL
    )


def test_a_module_packed_with_zstd_is_asked_of_modinfo(tree, monkeypatch):
    said = f"filename:       /x\nversion:        580.95.05\nlicense:        Dual MIT/GPL\nvermagic:       {OLD} SMP\n"
    monkeypatch.setattr(
        Host, "run", lambda self, argv, timeout=0: Completed(0, said, "") if "modinfo" in argv else None
    )
    tree.raw(f"lib/modules/{OLD}/updates/dkms/nvidia.ko.zst", b"packed")
    found = kmod.read_module(tree.host(), f"/lib/modules/{OLD}/updates/dkms/nvidia.ko.zst")
    assert found == kmod.Module("580.95.05", "Dual MIT/GPL", f"{OLD} SMP", "", "")


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01\x01", b"\x7fELF\x02" + bytes(200)])
def test_what_is_no_module_is_none(tree, content):
    tree.raw(f"lib/modules/{OLD}/updates/dkms/nvidia.ko", content)
    assert kmod.read_module(tree.host(), f"/lib/modules/{OLD}/updates/dkms/nvidia.ko") is None


def test_broken_packing_is_noted(tree):
    tree.raw(f"lib/modules/{OLD}/extra/nvidia.ko.xz", b"no xz")
    host = tree.host()
    assert kmod.read_module(host, f"/lib/modules/{OLD}/extra/nvidia.ko.xz") is None
    assert "cannot be unpacked" in host.notes[0]


def test_modinfo_words_are_read_with_a_signer():
    said = "version:        1\nsigner:         Canonical Ltd. Kernel Module Signing\nsig_key:        88:F7:0A\n"
    assert kmod.parse_modinfo(said)[3:] == ("Canonical Ltd. Kernel Module Signing", "88f70a")


@pytest.mark.parametrize(
    "path",
    [
        "updates/dkms/nvidia.ko",
        "updates/dkms/nvidia-current.ko",
        "updates/dkms/nvidia-current-open.ko",
        "kernel/nvidia-580/nvidia.ko",
        "extra/nvidia/nvidia.ko",
        "kernel/drivers/video/nvidia.ko",
        "weak-updates/nvidia.ko",
    ],
)
def test_the_module_is_found_wherever_it_is_put(tree, path):
    tree.module(OLD, "580.95.05", path=path)
    assert boot.module_path(tree.host(), OLD) == f"/lib/modules/{OLD}/{path}"


def test_the_modules_beside_it_are_not_taken_for_it(tree):
    for name in ("nvidia-drm", "nvidia-uvm", "nvidia-modeset", "nvidia-peermem", "nvidia-current-drm", "nvidiafb"):
        tree.module(OLD, "1", path=f"updates/dkms/{name}.ko")
    assert boot.module_path(tree.host(), OLD) == ""


def test_of_two_modules_the_one_that_depmod_prefers_is_taken(tree):
    tree.module(OLD, "570.1", path="kernel/drivers/video/nvidia.ko")
    tree.module(OLD, "580.1", path="updates/dkms/nvidia.ko")
    tree.text(f"lib/modules/{OLD}/modules.dep", "kernel/drivers/video/nvidia.ko:\nupdates/dkms/nvidia.ko:\n")
    assert boot.module_path(tree.host(), OLD).endswith("updates/dkms/nvidia.ko")


def test_every_bootable_kernel_is_looked_at(healthy):
    healthy.kernel(NEW, nouveau=True)
    found = healthy.facts().boot
    assert found.next == NEW
    assert [(k.release, k.version, k.flavour, k.built_for) for k in found.kernels] == [
        (OLD, "595.91.07", "open", OLD),
        (NEW, "", None, ""),
    ]


def test_the_library_in_use_is_what_its_link_leads_to(tree):
    tree.library("550.163.01", "usr/lib/x86_64-linux-gnu/nvidia/current")
    assert tree.facts().boot.library == "550.163.01"  # Debian's archive
    tree.text("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.1.2", "")
    tree.library("580.95.05")
    found = tree.facts().boot
    assert found.library == "580.95.05"
    assert [one.version for one in found.libraries] == ["535.1.2", "580.95.05", "550.163.01"]


def test_rivals_count_only_where_their_module_is_there(tree):
    tree.kernel(OLD)
    assert tree.facts().boot.kernels[0].rivals == ()
    tree.kernel(OLD, nouveau=True)
    assert tree.facts().boot.kernels[0].rivals == ("nouveau is not blacklisted",)


@pytest.mark.parametrize(
    ("blacklisted", "rivals"),
    [(1_600_000_000, ()), (1_800_000_000, ("the initramfs is older than the blacklist of nouveau",))],
)
def test_a_blacklist_counts_from_the_initramfs_that_was_made_after_it(tree, blacklisted, rivals):
    tree.kernel(OLD, nouveau=True)
    tree.blacklist(at=blacklisted)
    assert tree.facts().boot.kernels[0].rivals == rivals


@pytest.mark.parametrize("words", ["modprobe.blacklist=nouveau", "rd.driver.blacklist=nova_core,nouveau"])
def test_the_kernel_command_line_blacklists_too(tree, words):
    tree.kernel(OLD, nouveau=True)
    tree.text("proc/cmdline", f"root=/dev/sda1 {words}\n")
    assert tree.facts().boot.kernels[0].rivals == ()


def test_nova_core_is_a_rival_by_either_spelling(tree):
    tree.kernel(OLD)
    tree.text(f"lib/modules/{OLD}/modules.dep", "kernel/drivers/gpu/nova-core/nova-core.ko:\n")
    assert tree.facts().boot.kernels[0].rivals == ("nova_core is not blacklisted",)
    tree.text("etc/modprobe.d/x.conf", "install nova-core /bin/false\n", at=1)
    assert tree.facts().boot.kernels[0].rivals == ()


def test_certificates_and_signers_of_nothing_are_empty():
    for content in (b"", b"\x30", b"\x30\x80", b"\x30\x03abc", bytes(40), b"\x30\x82\xff\xff"):
        assert der.certificate(content) == ("", "")
        assert der.signer_of_pkcs7(content) == ("", "")


def test_secureboot_mok_is_read_from_efi_variables(tree):
    tree.secure_boot()
    expected = {"certificate": "/var/lib/dkms/mok.pub", "subject": "DKMS module signing key", "serial": SERIAL}
    assert mok.mok_facts(tree.host()) == {**expected, "enrolled": False, "requested": False}
    tree.secure_boot(requested=True)
    assert mok.mok_facts(tree.host()) == {**expected, "enrolled": False, "requested": True}
    tree.secure_boot(enrolled=True)
    assert mok.mok_facts(tree.host())["enrolled"] is True


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("/var/lib/dkms/mok.pub is already enrolled\n", (True, False)),
        ("/var/lib/dkms/mok.pub is not enrolled\n", (False, False)),
        ("/var/lib/dkms/mok.pub is already in the enrollment request\n", (False, True)),
        ("EFI variables are not supported on this system\n", (None, None)),
    ],
)
def test_secureboot_mok_is_asked_of_mokutil_where_variables_are_out_of_sight(tree, monkeypatch, said, state):
    asked: list[list[str]] = []

    def run(self, argv, timeout=0):
        asked.append(list(argv))
        return Completed(0, said, "")

    monkeypatch.setattr(Host, "run", run)
    assert mok.state(tree.host(), "/var/lib/dkms/mok.pub", b"der") == state
    assert asked == [["mokutil", "--test-key", "/var/lib/dkms/mok.pub"]]


def test_signing_paths_are_those_of_dkms(tree):
    assert mok.signing_paths(tree.host()) == mok.DKMS
    tree.text("etc/os-release", 'ID="ubuntu"\n')
    assert mok.signing_paths(tree.host()) == mok.UBUNTU
    tree.text("etc/dkms/framework.conf", "# mok_signing_key=/x\nmok_certificate=/old.der\n")
    tree.text("etc/dkms/framework.conf.d/mine.conf", 'mok_signing_key="/mine.key"\nmok_certificate="/mine.der"\n')
    assert mok.signing_paths(tree.host()) == ("/mine.key", "/mine.der")


def test_nothing_is_run_or_written_to_find_out(tree, tmp_path: Path):
    before = sorted(p for p in tmp_path.rglob("*"))
    tree.facts()
    assert sorted(p for p in tmp_path.rglob("*")) == before
