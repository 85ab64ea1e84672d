"""Removing a driver: a node before it, with it, and after `gpustrap remove`: the same packages and files again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import ledger
from gpustrap.lab.manager import Lab, NodeSpec

pytestmark = pytest.mark.slow
LIMIT = 3000  # seconds for an apply; a small machine with other work takes long
WISHES: dict[str, Any] = {
    "gpustrap_conda": False,
    "gpustrap_docker": False,
    "gpustrap_cuda_version": "none",
    "gpustrap_environments": [],
}
PACKAGES = "dpkg-query -W -f '${db:Status-Status} ${Package}\\n' | sed -n 's/^installed //p'"
OURS = "find /etc /usr/local /var/lib/gpustrap -name '*gpustrap*' -o -name 'gpu-power-limits' -o -name initramfs.json"
INITRAMFS = "lsinitramfs /boot/initrd.img-$(uname -r) 2>/dev/null || cat /boot/initrd.img-$(uname -r)"
CHANGED = "/etc/modules-load.d/gpustrap-nvidia.conf"
# What the role of the driver leaves, as docs/remove.md says: the compiler with what it needs, and the kernel's headers.
REST = "gcc-12"
RECOMMENDED = {"lsb-release"}  # dkms brought it, and python3-apt, which stays, recommends it


@dataclass
class Story:
    """What was on the node, and what was said."""

    operator: Any
    packages: dict[str, set[str]] = field(default_factory=dict)
    files: dict[str, set[str]] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)

    def look(self, when: str) -> None:
        self.packages[when] = set(self.operator.on_node(PACKAGES).split())
        self.files[when] = set(self.operator.on_node(OURS).split())

    def call(self, step: str, *words: str) -> None:
        self.said[step] = self.operator.call(*words, limit=LIMIT)


@pytest.fixture(scope="module")
def story(lab: Lab, node_names: Iterator[str], operate: Callable[..., Any]) -> Iterator[Story]:
    """Without a driver, with one, and without it again; the plan is changed, and applied, before the removal."""
    name = next(node_names)
    node = lab.up([NodeSpec(name, "debian12", gpus="1x-rtx3090")])[0]
    told = Story(operate(node, lab.standins()))
    told.operator.wish(**WISHES, gpustrap_gpu="none")
    told.call("without", "apply", "--no-verify")
    told.look("without")
    told.operator.wish(**WISHES)
    told.call("with", "apply", "--no-verify", "--reboot")
    told.look("with")
    told.call("wanted", "remove", "driver", name, "--yes")
    told.operator.wish(**WISHES, gpustrap_gpu="none")
    told.call("unwanted", "apply", "--no-verify")  # leaves the driver, and claims it no more
    told.call("not confirmed", "remove", "driver", name)
    told.operator.on_node(f"echo '# mine' >>{CHANGED}")
    told.call("check", "remove", "driver", name, "--check")
    told.look("checked")
    told.call("removed", "remove", "driver", name, "--yes")
    told.look("removed")
    told.call("rebooted", "remove", "driver", name, "--yes", "--reboot")
    told.call("after", "apply", "--no-verify")
    yield told
    lab.remove(name)


def test_steps_end_as_documented(story: Story) -> None:
    codes = {step: called.rc for step, called in story.said.items()}
    refused = {"wanted": 3, "not confirmed": 3}
    assert codes == dict.fromkeys(codes, 0) | refused | {"removed": 21}, {s: c.stderr for s, c in story.said.items()}


def test_nothing_goes_while_it_is_wanted_or_nobody_agreed(story: Story) -> None:
    assert "still-wanted" in story.said["wanted"].stdout + story.said["wanted"].stderr
    assert "not-confirmed" in story.said["not confirmed"].stderr
    assert story.packages["checked"] == story.packages["with"]
    assert story.files["checked"] == story.files["with"]


def test_packages_are_those_of_before_but_for_compiler_and_headers(story: Story) -> None:
    assert "nvidia-kernel-open-dkms" in story.packages["with"]
    rest = story.packages["removed"] - story.packages["without"]
    assert not story.packages["without"] - story.packages["removed"]
    needed = set(
        story.operator.on_node(
            f"apt-get -s --autoremove -o APT::AutoRemove::SuggestsImportant=false remove {REST} 'linux-headers-*' "
            "| sed -n 's/^Remv \\([^ ]*\\) .*/\\1/p'"
        ).split()
    )
    assert rest <= needed | RECOMMENDED, sorted(rest - needed)
    assert not {name for name in rest if "nvidia" in name or name in ("libcuda1", "dkms")}


def test_files_are_those_of_before_but_for_the_one_that_was_changed(story: Story) -> None:
    assert len(story.files["with"] - story.files["without"]) > 6
    assert story.files["removed"] - story.files["without"] == {CHANGED}
    kept = story.said["check"].node["kept"]
    assert f"{CHANGED}: was changed since the last run" in kept
    assert story.operator.on_node("systemctl --failed --no-legend") == ""


def test_what_was_shown_is_what_went(story: Story) -> None:
    shown = story.said["check"].node
    assert story.packages["checked"] - story.packages["removed"] == set(shown["packages"])
    assert story.files["checked"] - story.files["removed"] - set(shown["files"]) <= {
        "/var/lib/gpustrap/initramfs.json",
        "/etc/systemd/system/multi-user.target.wants/gpustrap-gpu-settings.service",
        "/etc/systemd/system/graphical.target.wants/gpustrap-gpu-settings.service",
    }


def test_the_next_boot_has_no_driver_and_may_have_nouveau(story: Story) -> None:
    assert story.operator.on_node("test ! -e /proc/driver/nvidia/version && echo gone") == "gone"
    assert "gpustrap-nvidia" not in story.operator.on_node(INITRAMFS)


def test_the_ledger_has_none_of_it_and_the_note_from_before_is_there(story: Story) -> None:
    assert "nvidia" not in story.operator.on_node(f"cat {ledger.LEDGER}")
    assert "nvidia" not in story.operator.on_node(f"cat {ledger.BEFORE}")
    assert story.operator.call("drift").rc == 0
