"""Guards of the software half of the catalog: names that exist, keys that are whole, references that resolve."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node.apt import PACKAGE
from gpustrap.catalog.check_stack import MOST_PACKAGES, stack_faults
from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_stack import DriverPackages

CATALOG = load_catalog()


def names(row: DriverPackages) -> set[str]:
    return row.names(("generic",))


def nvidia_rows() -> list[DriverPackages]:
    return [row for row in CATALOG.driver_packages if row.origin == "nvidia"]


def test_it_is_sound() -> None:
    assert stack_faults(CATALOG) == ()


def test_no_name_of_nvidias_ends_with_a_branch_after_580() -> None:
    ghosts = [n for row in nvidia_rows() for n in names(row) if re.search(r"-(5[89][1-9]|590|6\d\d)(-open)?$", n)]
    assert ghosts == []


def test_the_empty_metapackage_is_never_installed() -> None:
    """From 615 on cuda-drivers depends on nothing: apt succeeds, and there is no driver."""
    for row in CATALOG.driver_packages:
        if any(int(branch) >= 615 for branch in row.branches):
            assert not any(n.startswith(("cuda-drivers", "nvlink5")) for n in names(row)), row.row
            assert row.flavour == "open", row.row


def test_no_package_pulls_a_toolkit_or_moves_to_another_branch() -> None:
    """cuda and cuda-X-Y bring a driver of their own choice; pinning packages are not how we pin."""
    assert not [n for n in CATALOG.packages() if re.fullmatch(r"cuda(-\d+)*|cuda-runtime.*|nvidia-driver-pinning.*", n)]


def test_ubuntu_26_04_has_no_580_of_nvidias() -> None:
    for row in nvidia_rows():
        assert "ubuntu 26.04" not in row.distros or min(row.branches) >= "595", row.row


def test_what_was_not_read_in_a_repository_is_recalled() -> None:
    """620 anywhere; on Debian proprietary modules; 580 on Debian 13; proprietary modules on RHEL 10."""
    for row in nvidia_rows():
        unread = (
            "620" in row.branches
            or (row.distros[0].startswith("debian") and row.flavour == "proprietary")
            or (row.distros == ("debian 13",) and "580" in row.branches)
            or (row.distros == ("rhel 10",) and row.flavour == "proprietary")
        )
        assert not unread or row.confidence == "recalled", row.row


@pytest.mark.parametrize("distro", [d.key for d in CATALOG.distros])
def test_every_distribution_has_a_driver_that_is_chosen_by_itself(distro: str) -> None:
    rows = [r for r in CATALOG.driver_packages if distro in r.distros and r.confidence == "verified"]
    supported = {d.branch for d in CATALOG.drivers if d.supported}
    assert any(supported & set(row.branches) and row.flavour == "open" for row in rows)


def test_only_nvidias_own_repositories_hold_its_packages() -> None:
    by_name = {r.name: r for r in CATALOG.repositories}
    for row in nvidia_rows():
        assert by_name[row.repository].base.startswith("https://developer.download.nvidia.com/"), row.row
        assert by_name[row.repository].retention == "kept"


def test_a_node_is_asked_about_what_its_plan_may_need() -> None:
    noble = next(d for d in CATALOG.distros if d.key == "ubuntu 24.04")
    asked = set(CATALOG.packages_for(noble))
    assert {
        "linux-modules-nvidia-580-server-open-generic",
        "linux-modules-nvidia-595-server-generic-hwe-24.04",
        "linux-modules-nvidia-580-server-open-{kernel}",
        "linux-headers-nvidia-hwe-24.04",
        "linux-headers-{kernel}",
        "nvidia-fabricmanager-580",
        "nvidia-fabricmanager",
        "nvidia-open-580",
        "nvidia-dkms-open",
        "cuda-toolkit-12-9",
        "libcudnn9-cuda-13",
        "nvidia-container-toolkit",
        "docker-ce",
        "docker.io",
    } <= asked
    assert "nvidia-kernel-dkms" not in asked, "Debian's"
    assert asked <= set(CATALOG.packages())
    assert set(CATALOG.packages_for(None)) <= asked


def test_the_nodes_program_takes_every_name() -> None:
    asked = CATALOG.packages()
    assert len(asked) <= MOST_PACKAGES
    assert [n for n in asked if not PACKAGE.match(n.replace("{kernel}", "6.8.0-90-generic"))] == []


def test_gpus_before_turing_get_the_last_cudnn_that_knows_them() -> None:
    for wheel in CATALOG.wheels:
        old = any(float(c) < 7.5 for c in next(iter(wheel.compute.values())))
        if old and wheel.framework in {"jax", "tensorflow"}:
            assert wheel.constraints == ("nvidia-cudnn-cu12<9.11",), wheel.row
        if old and wheel.framework == "pytorch":
            assert wheel.cuda == "12.6" or wheel.compute["x86_64"][0] == "7.0", wheel.row


def _with(field: str, index: int, /, **changes: Any) -> Catalog:
    rows = list(getattr(CATALOG, field))
    rows[index] = rows[index].model_copy(update=changes)
    return dataclasses.replace(CATALOG, **{field: tuple(rows)})


def _packages(origin: str, flavour: str, branch: str, distro: str, **changes: Any) -> Catalog:
    rows = CATALOG.driver_packages
    found = next(
        i
        for i, r in enumerate(rows)
        if (r.origin, r.flavour) == (origin, flavour) and branch in r.branches and distro in r.distros
    )
    return _with("driver_packages", found, **changes)


def _noble(**changes: Any) -> Catalog:
    return _packages("nvidia", "open", "595", "ubuntu 24.04", **changes)


def _repository(name: str, **changes: Any) -> Catalog:
    found = next(i for i, r in enumerate(CATALOG.repositories) if r.name == name)
    return _with("repositories", found, **changes)


def _toolkit(**changes: Any) -> Catalog:
    return dataclasses.replace(CATALOG, container_toolkit=CATALOG.container_toolkit.model_copy(update=changes))


DAMAGE: list[tuple[Callable[[], Catalog], str]] = [
    (lambda: _noble(packages=("nvidia-open-595",), leading="nvidia-open-595"), "there is no nvidia-open-595"),
    (lambda: _noble(fabric_manager=("nvidia-fabricmanager-{branch}",)), "there is no nvidia-fabricmanager-595"),
    (
        lambda: _noble(packages=("cuda-drivers",), leading="cuda-drivers", branches=("615",)),
        "cuda-drivers is empty from 615 on",
    ),
    (lambda: _noble(packages=("nvidia-{brand}",), leading="nvidia-{brand}"), "a template cannot be filled: 'brand'"),
    (lambda: _noble(version="{versoin}-1"), "a template cannot be filled: 'versoin'"),
    (lambda: _noble(kernel_packages=("linux-headers-{karnel}",)), "a template cannot be filled: 'karnel'"),
    (lambda: _noble(packages=("NVIDIA",), leading="NVIDIA"), "NVIDIA is no name of a package"),
    (lambda: _noble(packages=("b", "a"), leading="a"), "a stands behind b"),
    (lambda: _noble(packages=("x-{kernel}",), leading="x-{kernel}"), "only kernel_packages know the kernel"),
    (lambda: _noble(leading="nvidia-utils"), "nvidia-utils leads, and is none of its packages"),
    (lambda: _noble(seen=("580.1",)), "version 580.1 is of none of its branches"),
    (lambda: _noble(seen=("615.1", "595.1")), "595 1 stands behind 615 1"),
    (lambda: _noble(repository="ubuntu2204"), "are in ubuntu2404, not in ubuntu2204"),
    (lambda: _noble(pin="hold"), "they are pinned by preferences"),
    (lambda: _noble(stream="nvidia-driver:{branch}-open"), "Ubuntu 24.04 has no module streams"),
    (lambda: _noble(branches=("580", "595", "610", "615"), seen=()), "another row has 580 on ubuntu 24.04, too"),
    (lambda: _packages("nvidia", "open", "620", "ubuntu 26.04", branches=("630",)), "branch 630 is not in the catalog"),
    (lambda: _repository("rhel10", sha256=""), "neither fingerprints nor sha256"),
    (lambda: _repository("rhel10", key=""), "it has one key or keyring"),
    (lambda: _repository("debian12", keyring="x.deb"), "it has one key or keyring"),
    (lambda: _repository("debian12", fingerprints=("A4B469963BF863CC",)), "is no whole fingerprint"),
    (lambda: _repository("debian12", architecture="ppc64le"), "architecture ppc64le is not in the catalog"),
    (lambda: _repository("debian12", base="ftp://x"), "ftp://x is no URL"),
    (lambda: _repository("debian12", path="debian12"), "base and path make no URL"),
    (lambda: _repository("debian12", suite=""), "apt's repositories have a suite"),
    (lambda: _repository("debian-archive", fingerprints=("A" * 40,)), "its keys are the system's"),
    (lambda: _repository("debian-archive", snapshot="https://snapshot.debian.org"), "snapshot has no {time}"),
    (lambda: dataclasses.replace(CATALOG, repositories=CATALOG.repositories[::-1]), "stands behind"),
    (lambda: dataclasses.replace(CATALOG, driver_packages=CATALOG.driver_packages[::-1]), "stands behind"),
    (lambda: dataclasses.replace(CATALOG, driver_packages=CATALOG.driver_packages[:1]), "packages has no row for it"),
    (lambda: dataclasses.replace(CATALOG, wheels=CATALOG.wheels[::-1]), "stands behind"),
    (lambda: dataclasses.replace(CATALOG, controllers=CATALOG.controllers[::-1]), "stands behind"),
    (lambda: dataclasses.replace(CATALOG, cdi=CATALOG.cdi[:1]), "CDI spec 0.7 is not in the catalog"),
    (lambda: _with("cdi", 0, docker_default="20.10"), "docker cannot use it by itself"),
    (lambda: _with("distros", 0, aliases=("ubuntu",), version_id="24.04"), "ubuntu 24.04 is debian 24.04, too"),
    (lambda: _with("distros", 0, kernel_flavours=tuple(f"{n:04}" for n in range(1000))), "at most"),
    (lambda: _with("distros", 0, prebuilt_for=("pve",)), "kernel flavour pve is not in the catalog"),
    (lambda: _with("distros", 0, kernel_release=""), "tell a kernel's flavour together only"),
    (lambda: _with("distros", 0, kernel_release="("), "kernel_release is no pattern"),
    (lambda: _toolkit(repository="x"), "repository x is not in the catalog"),
    (lambda: _toolkit(repository="container-toolkit-rpm"), "is no repository of apt"),
    (lambda: _with("wheels", -1, compute={"x86_64": ("9.0", "8.0")}), "8 0 stands behind 9 0"),
    (lambda: _with("wheels", -1, compute={"x86_64": ("7.0", "8.0")}), "CUDA 13 makes no code for 7.0"),
    (lambda: _with("wheels", -1, compute={"x86_64": ("9.7",)}), "compute capability 9.7 is not in the catalog"),
    (lambda: _with("wheels", -1, compute={"sparc": ("9.0",)}), "architecture sparc is not in the catalog"),
    (lambda: _with("wheels", -1, ptx="9.0"), "PTX of 9.0"),
    (lambda: _with("wheels", -1, requirement="torch==2.14.0"), "asks for something else"),
    (lambda: _with("wheels", -1, index="http://x"), "is no https URL"),
    (lambda: _with("wheels", -1, pythons=("3.10", "3.9")), "3 9 stands behind 3 10"),
    (lambda: _with("wheels", -1, compute={"x86_64": ()}), "no code for any GPU on x86_64"),
    (lambda: _with("wheels", 0, ptx="9.0"), "code for GPUs, and no CUDA that it is built for"),
    (lambda: _with("conda_builds", 0, requirement="pytorch=2.12.0"), "pytorch=2.12.0 asks for something else"),
    (lambda: _with("conda_builds", 0, index="https://x"), "conda's builds have neither index nor constraints"),
    (lambda: _with("uv", 0, version="0.1.0"), "one version for every architecture"),
    (lambda: _with("uv", 0, architecture="x86_64"), "is the wheel of something else"),
    (lambda: _with("uv", 0, architecture="sparc"), "uv: architecture sparc is not in the catalog"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGE, ids=[said for _, said in DAMAGE])
def test_damage_is_said(damage: Callable[[], Catalog], said: str) -> None:
    assert any(said in fault for fault in stack_faults(damage())), said
