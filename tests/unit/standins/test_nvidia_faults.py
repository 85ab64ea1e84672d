"""Switches for tests: what is wrong with a repository is refused by apt, with apt's own words."""

from __future__ import annotations

import subprocess

import pytest

from gpustrap.lab.standins import nvidia
from gpustrap.lab.standins.apt_repository import signing_key
from gpustrap.lab.standins.nvidia import Faults

NAME = "container-toolkit"  # the smallest
PLACE = "libnvidia-container/stable/deb/amd64"
KEY = "libnvidia-container/gpgkey"


@pytest.fixture
def build(tmp_path):
    """A faulty repository: ``build(Faults(...))``."""

    def make(faults=nvidia.NONE):
        nvidia.build(tmp_path / "site", lambda _step: None, faults, only=(NAME,))
        return tmp_path / "site"

    return make


@pytest.fixture
def update(make_apt):
    def run(site, key=None):
        return make_apt(site / PLACE, key=key or site / KEY, update=False)("apt-get", "update")

    return run


def test_sound(build, update):
    site = build()
    assert update(site).rc == 0
    told = (site / "fingerprint").read_text().strip()
    shown = subprocess.run(("gpg", "--show-keys", "--with-colons", site / KEY), capture_output=True, text=True).stdout
    assert [line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr:")] == [told]


def test_wrong_key(build, update, tmp_path):
    other = tmp_path / "other.asc"
    with signing_key(tmp_path / "gnupg") as key:
        other.write_bytes(key.public)
    done = update(build(), other)
    assert done.rc == 100
    assert "NO_PUBKEY" in done.err


def test_expired_key(build, update):
    done = update(build(Faults(key="expired")))
    assert done.rc == 100
    assert "EXPKEYSIG" in done.err


def test_rotated_key(build, update, tmp_path):
    """What is published and signs is another key than sites were told; who has the old one is refused."""
    site = build(Faults(key="rotated"))
    assert update(site).rc == 0
    shown = subprocess.run(("gpg", "--show-keys", "--with-colons", site / KEY), capture_output=True, text=True).stdout
    assert (site / "fingerprint").read_text().strip() not in shown


def test_self_signature_of_sha1(build, update):
    """apt of Debian 12 does not look at it; that of Debian 13 refuses the key."""
    site = build(Faults(key="sha1"))
    done = update(site)
    assert done.rc == 0 or "SHA1" in done.err
    packets = subprocess.run(("gpg", "--list-packets", site / KEY), capture_output=True, text=True).stdout
    assert "digest algo 2," in packets


def test_signature_of_sha1(build, update):
    site = build(Faults(key="sha1-signature"))
    assert "\nHash: SHA1\n" in (site / PLACE / "InRelease").read_text()
    done = update(site)
    assert done.rc == 100
    assert "is not signed" in done.err


def test_index_with_a_wrong_sum(build, update):
    done = update(build(Faults(wrong_sums=("Packages",))))
    assert done.rc == 100
    assert "Hash Sum mismatch" in done.err


def test_package_with_a_wrong_sum(build, make_apt):
    site = build(Faults(wrong_sums=("libnvidia-container1",)))
    apt = make_apt(site / PLACE, key=site / KEY)
    done = apt("apt-get", "-y", "-o", "Debug::NoLocking=1", "--download-only", "install", "libnvidia-container1")
    assert done.rc == 100
    assert "Hash Sum mismatch" in done.err


def test_a_version_that_vanished(build, make_apt):
    site = build(Faults(vanished=("nvidia-container-toolkit=1.20.0-1", "libnvidia-container1")))
    apt = make_apt(site / PLACE, key=site / KEY)
    assert apt.candidate("nvidia-container-toolkit") == "1.19.1-1"
    gone = apt.simulate("nvidia-container-toolkit=1.20.0-1")
    assert gone.rc == 100
    assert "Version '1.20.0-1' for 'nvidia-container-toolkit' was not found" in gone.err
    assert "libnvidia-container1" not in {path.name.partition("_")[0] for path in (site / PLACE).iterdir()}


def test_a_release_from_the_future(build, update):
    done = update(build(Faults(future=3)))
    assert done.rc == 100
    assert "not valid yet" in done.err


def test_variables_are_those_of_a_mirror(build):
    site = build()
    assert nvidia.variables(site, "http://10.0.0.1:8000/nvidia/") == {
        "gpustrap_nvidia_repository": "http://10.0.0.1:8000/nvidia/compute/cuda/repos",
        "gpustrap_nvidia_key_fingerprints": [(site / "fingerprint").read_text().strip()],
    }
