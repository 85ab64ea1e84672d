"""Every trap of NVIDIA's repositories, by plain apt on the stand-in."""

from __future__ import annotations

import re

import pytest

from gpustrap.lab.standins import nvidia_data

UBUNTU = ("ubuntu2204", "ubuntu2404", "ubuntu2604")


@pytest.fixture
def noble(make_apt, cuda):
    return make_apt(cuda("ubuntu2404"))


def branch(version: str) -> str:
    return version.partition(".")[0]


@pytest.mark.parametrize("name", nvidia_data.repositories())
def test_apt_takes_every_repository_without_a_word(make_apt, cuda, name):
    apt = make_apt(cuda(name), update=False)
    done = apt("apt-get", "update")
    assert (done.rc, done.err) == (0, "")
    assert re.search(r"release o=NVIDIA,l=NVIDIA CUDA,c=", apt("apt-cache", "policy").out)
    assert apt.candidate("nvidia-open").startswith("615.71.09-")


def test_suffixes_stop_after_580(noble):
    names = noble.names()
    for family in ("nvidia-open", "cuda-drivers", "nvlink5"):
        assert f"{family}-580" in names
    ghosts = {n for n in names if re.search(r"-(59\d|6\d\d)(-open)?$", n) and "pinning" not in n}
    assert {n for n in ghosts if not n.startswith("nvidia-fabricmanager-")} == set()
    assert "Unable to locate package nvidia-open-595" in noble.simulate("nvidia-open-595").err


def test_580_comes_by_its_own_names(noble):
    done = noble.simulate("nvidia-open-580")
    assert done.installs["nvidia-dkms-580-open"] == "580.178.04-1ubuntu1"
    assert done.installs["nvidia-utils-580"] == "580.178.04-1ubuntu1"
    done = noble.simulate("cuda-drivers-580")
    assert "nvidia-dkms-580" in done.installs
    assert "nvidia-dkms-580-open" not in done.installs


def test_a_version_of_nvidia_open_does_not_choose_the_driver(noble):
    """Its dependency says at least: 595.91.07 is asked for, 615.71.09 comes."""
    done = noble.simulate("nvidia-open=595.91.07-1ubuntu1")
    assert done.installs["nvidia-open"] == "595.91.07-1ubuntu1"
    assert done.installs["nvidia-dkms-open"] == "615.71.09-2ubuntu1"
    assert done.installs["nvidia-driver-pinning-615"] == "615-1ubuntu1"


def test_a_pinning_package_does_not_bind_its_own_transaction(noble, cuda):
    together = noble.simulate("nvidia-driver-pinning-595", "nvidia-open")
    assert branch(together.installs["nvidia-dkms-open"]) == "615"
    noble.unpack(cuda("ubuntu2404"), "nvidia-driver-pinning-595", "595-1ubuntu1", "all")
    after = noble.simulate("nvidia-open")
    assert after.installs["nvidia-dkms-open"] == after.installs["libnvidia-compute"] == "595.91.07-1ubuntu1"
    assert noble.candidate("nvidia-fabricmanager") == "595.91.07-1ubuntu1"
    assert noble.candidate("nvidia-container-toolkit") == "1.20.0-1"


def test_a_pinning_package_allows_downgrades_and_there_is_one_at_a_time(noble, cuda):
    repository = cuda("ubuntu2404")
    noble.installed(repository, noble.simulate("nvidia-open").installs)
    noble.unpack(repository, "nvidia-driver-pinning-595.71.05", "595.71.05-1ubuntu1", "all")
    switched = noble.simulate("nvidia-driver-pinning-595.71.05")
    assert switched.removes == {"nvidia-driver-pinning-615"}
    down = noble.simulate(verb="dist-upgrade")
    assert down.installs["nvidia-open"] == down.installs["nvidia-dkms-open"] == "595.71.05-1ubuntu1"
    assert "DOWNGRADED" in down.out
    both = noble.simulate("nvidia-driver-pinning-595", "nvidia-driver-pinning-610")
    assert both.rc == 100
    assert "Conflicts: nvidia-driver-pinning" in both.out


@pytest.mark.parametrize("name", nvidia_data.repositories())
def test_the_metapackage_of_the_proprietary_driver_is_empty(make_apt, cuda, name):
    """apt succeeds, and there is no driver."""
    done = make_apt(cuda(name)).simulate("cuda-drivers")
    assert done.rc == 0
    assert list(done.installs) == ["cuda-drivers"]


def test_proprietary_modules_ended_with_610(noble, make_apt, cuda):
    assert noble.candidate("nvidia-driver") == noble.candidate("nvidia-dkms") == "610.57.04-1ubuntu1"
    assert noble.simulate("nvidia-driver").rc == 100  # its siblings have gone on to 615
    noble.unpack(cuda("ubuntu2404"), "nvidia-driver-pinning-610", "610-1ubuntu1", "all")
    assert noble.simulate("nvidia-driver").installs["nvidia-dkms"] == "610.57.04-1ubuntu1"
    trixie = make_apt(cuda("debian13"))
    done = trixie.simulate("nvidia-kernel-dkms")
    assert done.installs["nvidia-kernel-open-dkms"] == "615.71.09-2"
    assert "Transitional dummy package" in trixie("apt-cache", "show", "nvidia-kernel-dkms").out


@pytest.mark.parametrize("name", ["ubuntu2604", "debian13"])
def test_no_580_there(make_apt, cuda, name):
    apt = make_apt(cuda(name))
    assert not {n for n in apt.names() if n.endswith("-580")}
    versions = apt("apt-cache", "madison", "nvidia-open").out
    assert versions
    assert "580." not in versions


def test_fabric_manager_has_its_branch_in_the_version(noble, cuda):
    assert "nvidia-fabricmanager-575" in noble.names()
    assert noble.simulate("nvidia-fabricmanager=580.178.04-1ubuntu1").installs == {
        "nvidia-fabricmanager": "580.178.04-1ubuntu1"
    }
    # Beside a driver of 580, it moves to the newest by itself: CUDA's error 802.
    driver = noble.simulate("nvidia-open-580", "nvidia-fabricmanager").installs
    assert branch(driver["nvidia-dkms-580-open"]) == "580"
    assert branch(driver["nvidia-fabricmanager"]) == "615"
    refused = noble.simulate("nvidia-fabricmanager-595")
    assert refused.rc == 100
    assert "virtual package" in refused.out
    noble.unpack(cuda("ubuntu2404"), "nvidia-driver-pinning-580", "580-1ubuntu1", "all")
    assert noble.simulate("nvidia-fabricmanager-580").installs == {"nvidia-fabricmanager": "580.178.04-1ubuntu1"}


def test_nvlink5_is_a_whole_set_and_then_nothing(noble, cuda):
    done = noble.simulate("nvlink5-580")
    assert {"nvlsm", "libnvsdm", "mft", "nvidia-imex", "nvidia-dkms-580-open", "libibumad3"} <= set(done.installs)
    assert "nvidia-utils-580" not in done.installs
    assert list(noble.simulate("nvlink5").installs) == ["nvlink5"]
    noble.unpack(cuda("ubuntu2404"), "nvidia-driver-pinning-595", "595-1ubuntu1", "all")
    assert {"nvidia-fabricmanager", "nvlsm"} <= set(noble.simulate("nvlink5").installs)


def test_cuda_metapackages_pull_a_driver_and_toolkits_do_not(noble):
    for package in ("cuda", "cuda-13-0", "cuda-runtime-13-0"):
        assert branch(noble.simulate(package).installs["nvidia-dkms-open"]) == "615", package
    for package in ("cuda-toolkit", "cuda-toolkit-13-0", "cuda-libraries-13-0"):
        assert not {n for n in noble.simulate(package).installs if "nvidia" in n}, package
    assert branch(noble.simulate("cuda-12-8").installs["libnvidia-compute-570"]) == "570"


def test_an_old_metapackage_takes_the_empty_driver(make_apt, cuda):
    done = make_apt(cuda("ubuntu2204")).simulate("cuda-11-8")
    assert done.installs["cuda-drivers"] == "615.71.09-2ubuntu1"
    assert not {n for n in done.installs if "dkms" in n}


def test_the_keyring_prefers_the_whole_repository(noble, cuda):
    assert noble.candidate("nvidia-container-toolkit") == "1.20.0-1"
    noble.unpack(cuda("ubuntu2404"), "cuda-keyring", "1.1-1", "all")
    entry = noble.root / "etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"
    assert entry.read_text() == (
        "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] "
        "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/ /\n"
    )
    entry.unlink()
    assert re.search(r"\n     1:3\.4\.1-1ubuntu1 600\n", noble("apt-cache", "policy", "dkms").out)
    assert re.search(r"\n 600 file:\S+ubuntu2404\S+ +Packages", noble("apt-cache", "policy").out)


def test_dkms_of_nvidia_outranks_the_distributions_for_good(noble):
    assert noble.candidate("dkms") == "1:3.4.1-1ubuntu1"


def test_an_older_container_toolkit_needs_all_four_named(noble):
    four = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    )
    alone = noble.simulate("nvidia-container-toolkit=1.19.1-1")
    assert alone.rc == 100
    assert "nvidia-container-toolkit-base (= 1.19.1-1)" in alone.out
    assert set(noble.simulate(*(f"{name}=1.19.1-1" for name in four)).installs.values()) == {"1.19.1-1"}


def test_nccl_of_the_newest_cuda_is_the_candidate(noble):
    assert noble.candidate("libnccl2") == "2.32.3-1+cuda13.4"
    assert noble.simulate("libnccl-dev=2.32.3-1+cuda12.9", "libnccl2=2.32.3-1+cuda12.9").rc == 0
    assert noble.simulate("libnccl-dev=2.32.3-1+cuda12.9").rc == 100


def test_revisions_differ_where_they_really_do(noble, make_apt, cuda):
    assert noble.candidate("nvidia-dkms-open") == "615.71.09-2ubuntu1"
    assert make_apt(cuda("debian12")).candidate("nvidia-driver-cuda") == "615.71.09-1"
    assert make_apt(cuda("debian13")).candidate("nvidia-driver-cuda") == "615.71.09-2"
