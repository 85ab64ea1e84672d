"""Our preferences, read by the real apt: one origin of the driver, one version, nothing else touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_driver_files as files
from gpustrap.ansible_plugins.module_utils.gpustrap_node.driver_set import Wanted

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt on this machine")

OPEN = Wanted("580", "open", "dkms", dict.fromkeys(("nvidia-driver-cuda", "nvidia-kernel-open-dkms"), "580.178.04-1"))
NVIDIA = (
    "nvidia-driver-cuda 580.178.04-1",
    "nvidia-driver-cuda 595.71.05-1",
    "libcuda1 580.178.04-1",
    "libcuda1 595.71.05-1",
)
EXTRAS = ("nvidia-modprobe 580.178.04-2", "nvidia-modprobe 595.71.05-1", "nvidia-container-toolkit 1.20.0-1")
FOREIGN = (
    "libcuda1 999.1-1",
    "nvidia-driver-cuda 999.1-1",
    "nvidia-kernel-common 20220217+3",
    "nvidia-fabricmanager 999.1-1",
)


class Apt:
    """The machine's apt, over a root of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("etc/apt/preferences.d", "etc/apt/sources.list.d", "var/lib/apt/lists/partial", "var/lib/dpkg"):
            (root / name).mkdir(parents=True)
        (root / "var/cache/apt/archives/partial").mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "apt.conf").write_text(
            f'Dir "{root}";\nDir::State::status "{root}/var/lib/dpkg/status";\nAPT::Architecture "amd64";\n'
            'APT::Sandbox::User "root";\nDebug::NoLocking "true";\n'
        )

    def repository(self, name: str, rows: tuple[str, ...], origin: str = "") -> None:
        here = self.root / name
        here.mkdir()
        stanza = "Package: {}\nVersion: {}\nArchitecture: amd64\nFilename: ./{}.deb\nSize: 1\nSHA256: {:064x}\n"
        text = "\n".join(stanza.format(*row.split(), n, hash((name, row)) % 2**64) for n, row in enumerate(rows))
        (here / "Packages").write_text(text)
        if origin:
            (here / "Release").write_text(f"Origin: {origin}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n")
        (self.root / f"etc/apt/sources.list.d/{name}.list").write_text(f"deb [trusted=yes] file:{here} ./\n")

    def run(self, *words: str) -> str:
        environment = os.environ | {"APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout

    def candidate(self, name: str) -> str:
        found = re.search(r"Candidate: (\S+)", self.run("apt-cache", "policy", name))
        return found[1] if found else ""


@pytest.fixture
def apt(tmp_path: Path) -> Apt:
    made = Apt(tmp_path)
    made.repository("nvidia", (*NVIDIA, *EXTRAS), "NVIDIA")
    made.repository("foreign", FOREIGN)
    # What cuda-keyring and a pinning package leave behind.
    (tmp_path / "etc/apt/preferences.d/nvidia-pins").write_text(
        "Package: *\nPin: release o=NVIDIA\nPin-Priority: 600\n\n"
        "Package: *nvidia* libcuda1\nPin: version 595.*\nPin-Priority: 1000\n"
    )
    return made


def pinned(apt: Apt, wanted: Wanted, pin: str) -> None:
    name = Path(files.PREFERENCES).name
    (apt.root / "etc/apt/preferences.d" / name).write_text(files.preferences(wanted, pin, []))
    apt.run("apt-get", "update")


def test_unmet_deps_mixed_repos(apt):
    """Only the locked version of the driver can come, whoever else has the same names; other packages are free."""
    pinned(apt, OPEN, "preferences")
    assert apt.candidate("nvidia-driver-cuda") == "580.178.04-1"
    assert apt.candidate("libcuda1") == "580.178.04-1"
    assert apt.candidate("nvidia-modprobe") == "580.178.04-2"
    assert apt.candidate("nvidia-fabricmanager") == "(none)"
    assert apt.candidate("nvidia-kernel-common") == "20220217+3"
    assert apt.candidate("nvidia-container-toolkit") == "1.20.0-1"


def test_with_the_archives_driver_no_other_repositorys_can_come(apt):
    apt.repository("archive", ("libcuda1 550.163.01-2", "nvidia-smi 550.163.01-2"), "Debian")
    pinned(apt, Wanted("550", "open", "dkms", {"nvidia-smi": "550.163.01-2"}), "hold")
    assert apt.candidate("libcuda1") == "550.163.01-2"
    assert apt.candidate("nvidia-smi") == "550.163.01-2"
    assert apt.candidate("nvidia-driver-cuda") == "(none)"
    assert apt.candidate("nvidia-container-toolkit") == "1.20.0-1"


def test_new_preferences_win_over_old_ones_before_they_are_written(apt):
    later = Wanted("595", "open", "dkms", dict.fromkeys(OPEN.packages, "595.71.05-1"))
    pinned(apt, later, "preferences")
    (apt.root / "new").write_text(files.preferences(OPEN, "preferences", []))
    policy = apt.run("apt-cache", "policy", "-o", f"Dir::Etc::Preferences={apt.root}/new", "libcuda1")
    assert "Candidate: 580.178.04-1" in policy
    assert apt.candidate("libcuda1") == "595.71.05-1"


def test_holds_are_remembered_in_our_own_file():
    text = files.preferences(OPEN, "hold", ["b", "a"])
    assert files.held_by_us(text) == ["a", "b"]
    assert files.held_by_us(files.preferences(OPEN, "preferences", [])) == []
    assert files.held_by_us("") == []


def blacklist(apt: Apt, metapackages: list[str]) -> list[str]:
    (apt.root / "upgrades").write_text(files.upgrades(metapackages))
    dumped = apt.run("apt-config", "dump", "-c", str(apt.root / "upgrades"))
    return re.findall(r'^Unattended-Upgrade::Package-Blacklist:: "(.*)";$', dumped, re.MULTILINE)


def test_driver_lib_mismatch(apt):
    """unattended-upgrades leaves the whole update set alone; its list has patterns for the start of a name."""
    entries = blacklist(apt, files.kernel_metapackages(["linux-headers-{kernel}", "linux-headers-generic-hwe-24.04"]))

    def spared(name: str) -> bool:
        return any(re.match(entry, name) for entry in entries)

    ours = ("libnvidia-common-460", "nvidia-utils-595", "libcuda1", "linux-modules-nvidia-595-open-generic")
    kernel = ("linux-image-generic-hwe-24.04", "linux-headers-generic-hwe-24.04", "linux-generic-hwe-24.04")
    others = ("libnvidia-container1", "openssl", "linux-image-generic", "linux-firmware", "linux-generic-hwe-24x04")
    assert [name for name in (*ours, *kernel) if not spared(name)] == []
    assert [name for name in others if spared(name)] == []


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["linux-headers-{kernel}"], []),
        (["linux-headers-amd64"], ["linux-amd64", "linux-headers-amd64", "linux-image-amd64"]),
        (
            ["linux-modules-nvidia-595-server-open-generic"],
            [
                "linux-generic",
                "linux-headers-generic",
                "linux-image-generic",
                "linux-modules-nvidia-595-server-open-generic",
            ],
        ),
    ],
)
def test_metapackages_of_a_kernels_flavour(names, found):
    assert files.kernel_metapackages(names) == found
