"""What inspect says of the three versions, and of the next boot."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from gpustrap.model.attention import attention
from gpustrap.report.inspect_text import render

NEW = "6.12.48+deb13-amd64"


def found(tree):
    return [(f.message, f.remedy) for f in attention(tree.facts()) if f.message.startswith("NVIDIA: ")]


def card(tree):
    console = Console(file=StringIO(), width=400)
    console.print(render({"n1": tree.facts()}))
    return console.file.getvalue()


def test_a_driver_that_runs_is_shown_with_its_parts(healthy):
    assert found(healthy) == []
    words = "on disk    module for 6.12.41+deb13-amd64 595.91.07 open; libraries 595.91.07"
    assert words in card(healthy)


def test_driver_lib_mismatch_is_told_with_the_command(healthy):
    healthy.loaded("580.95.05")
    assert found(healthy) == [("NVIDIA: driver 580.95.05 is loaded, 595.91.07 is installed", "gpustrap apply --reboot")]


def test_kernel_moved_no_module_is_told_before_the_reboot(healthy):
    healthy.kernel(NEW, nouveau=True)
    [(message, remedy)] = found(healthy)
    assert "the next boot would be without it" in message
    assert remedy == "gpustrap apply"
    assert f"module for {NEW} none" in card(healthy)


def test_secureboot_mok_names_the_key_and_the_console(healthy):
    healthy.module("6.12.41+deb13-amd64", "595.91.07", signed=True)
    healthy.path("proc/driver/nvidia/version").unlink()
    healthy.secure_boot(requested=True)
    [(_, remedy)] = found(healthy)
    assert remedy.startswith("open the screen or BMC console; then, on the node: sudo systemctl reboot.")
    assert "{node}" not in remedy
    assert 'signed by DKMS module signing key; libraries 595.91.07; key "DKMS module signing key" not enrolled' in card(
        healthy
    )
