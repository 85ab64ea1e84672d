"""Faults of a lab's stand-ins: apt refuses what is wrong, in its own words, until it is healed."""

from __future__ import annotations

import subprocess

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_openpgp import primary_keys
from gpustrap.errors import GpustrapError
from gpustrap.lab import standins
from gpustrap.lab.standins import nvidia
from gpustrap.lab.standins.nvidia_data import all_repositories

TOOLKIT = all_repositories()["container-toolkit"]  # the smallest


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What a lab keeps: the sound one, built once."""
    directory = tmp_path_factory.mktemp("sound")
    nvidia.build(directory, lambda _step: None, lambda one: one.name == TOOLKIT.name)
    return directory


@pytest.fixture
def lab(made, tmp_path):
    """A lab that serves it, with `standins.spoil` on its directory."""
    served = tmp_path / "standins"
    for place in (served / "nvidia", standins.sound(served)):
        place.parent.mkdir(exist_ok=True)
        subprocess.run(("cp", "-al", str(made), str(place)), check=True)
    return served


@pytest.fixture
def spoil(lab):
    def run(*texts):
        standins.spoil(lab, [TOOLKIT.name], texts)
        return lab / "nvidia"

    return run


@pytest.fixture
def update(make_apt):
    """`apt-get update` of a node that has the key it was told, or that which is published."""

    def run(site, key=None):
        return make_apt(site / TOOLKIT.place, key=key or site / TOOLKIT.key_place, update=False)("apt-get", "update")

    return run


def told(made):
    return nvidia.kept_key(made, TOOLKIT).with_suffix(".asc")


def test_sound(spoil, update, made):
    assert update(made).rc == 0
    site = spoil()
    assert update(site, told(made)).rc == 0


def test_expired_key(spoil, update, made):
    site = spoil("key=expired")
    done = update(site)
    assert done.rc == 100
    assert "EXPKEYSIG" in done.err or "expired" in done.err
    assert primary_keys((site / TOOLKIT.key_place).read_bytes()) == primary_keys(told(made).read_bytes())
    assert update(spoil(), told(made)).rc == 0


def test_rotated_key(spoil, update, made):
    """What is published and signs is another key than sites were told; who has the old one is refused."""
    site = spoil("key=rotated")
    assert update(site).rc == 0
    assert primary_keys((site / TOOLKIT.key_place).read_bytes()) != primary_keys(told(made).read_bytes())
    done = update(site, told(made))
    assert done.rc == 100
    assert "NO_PUBKEY" in done.err or "Missing key" in done.err


def test_self_signature_of_sha1(spoil, update):
    """apt of Debian 12 does not look at it; that of Debian 13 refuses the key."""
    site = spoil("key=sha1")
    done = update(site)
    assert done.rc == 0 or "SHA1" in done.err
    packets = subprocess.run(
        ("gpg", "--list-packets", str(site / TOOLKIT.key_place)), capture_output=True, text=True
    ).stdout
    assert packets.count("digest algo") == packets.count("digest algo 2,") == 1


def test_signature_of_sha1(spoil, update):
    site = spoil("key=sha1-signature")
    assert "\nHash: SHA1\n" in (site / TOOLKIT.place / "InRelease").read_text()
    done = update(site)
    assert done.rc == 100
    assert "is not signed" in done.err


def test_index_with_a_wrong_sum(spoil, update):
    done = update(spoil("wrong-sum=Packages"))
    assert done.rc == 100
    assert "Hash Sum mismatch" in done.err


def test_package_with_a_wrong_sum(spoil, make_apt, made):
    site = spoil("wrong-sum=libnvidia-container1")
    apt = make_apt(site / TOOLKIT.place, key=told(made))
    done = apt("apt-get", "-y", "-o", "Debug::NoLocking=1", "--download-only", "install", "libnvidia-container1")
    assert done.rc == 100
    assert "Hash Sum mismatch" in done.err


def test_a_version_that_vanished(spoil, make_apt, made):
    site = spoil("vanished=nvidia-container-toolkit=1.20.0-1", "vanished=libnvidia-container1")
    apt = make_apt(site / TOOLKIT.place, key=told(made))
    assert apt.candidate("nvidia-container-toolkit") == "1.19.1-1"
    gone = apt.simulate("nvidia-container-toolkit=1.20.0-1")
    assert gone.rc == 100
    assert "Version '1.20.0-1' for 'nvidia-container-toolkit' was not found" in gone.err
    assert "libnvidia-container1" not in {path.name.partition("_")[0] for path in (site / TOOLKIT.place).iterdir()}


def test_a_release_from_the_future(spoil, update):
    done = update(spoil("future=3"))
    assert done.rc == 100
    assert "not valid yet" in done.err


def test_healed_is_whole_and_newer_than_the_fault(spoil, make_apt, made):
    """apt keeps what it has where what is served is older."""
    site = spoil("vanished=nvidia-container-toolkit")
    apt = make_apt(site / TOOLKIT.place, key=told(made))
    assert apt.candidate("nvidia-container-toolkit") == ""
    spoil()
    assert apt("apt-get", "update").rc == 0
    assert apt.candidate("nvidia-container-toolkit") == "1.20.0-1"
    served = {path.name: path.read_bytes() for path in (site / TOOLKIT.place).glob("*.deb")}
    assert served == {path.name: path.read_bytes() for path in (made / TOOLKIT.place).glob("*.deb")}


def test_nothing_of_the_sound_one_is_written_to(spoil, made):
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    spoil("key=sha1", "wrong-sum=Packages", "wrong-sum=libnvidia-container1", "vanished=libnvidia-container-tools")
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_faults_are_listed_and_replace_each_other(lab, spoil):
    spoil("key=rotated")
    spoil("future=2", "vanished=libnvidia-container1")
    assert standins.faulty(lab)["container-toolkit"] == ["future=2", "vanished=libnvidia-container1"]
    assert standins.faulty(lab)["debian13"] == []
    spoil()
    assert not any(standins.faulty(lab).values())


@pytest.mark.parametrize(
    ("names", "texts", "words"),
    [
        (["debian14"], [], "there is no repository debian14"),
        ([TOOLKIT.name], ["key=lost"], "'key=lost' is no fault"),
        ([TOOLKIT.name], ["future=soon"], "'future=soon' is no fault"),
        ([TOOLKIT.name], ["vanished=nvidia-open=1"], "no such package in container-toolkit: nvidia-open=1"),
        ([TOOLKIT.name], ["wrong-sum=nvidia-open"], "no such package in container-toolkit: nvidia-open"),
    ],
)
def test_what_is_no_fault_is_refused_and_changes_nothing(lab, names, texts, words):
    before = sorted(path.name for path in (lab / "nvidia").rglob("*"))
    with pytest.raises(GpustrapError, match=words):
        standins.spoil(lab, names, texts)
    assert sorted(path.name for path in (lab / "nvidia").rglob("*")) == before


def test_without_stand_ins_there_is_nothing_to_spoil(tmp_path):
    with pytest.raises(GpustrapError, match="serves no stand-ins"):
        standins.spoil(tmp_path / "standins", [], ["key=rotated"])
