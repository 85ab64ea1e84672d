"""Role nvidia_fabric_manager on a real node with simulated NVSwitches: the fabric comes up, or says why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpustrap.lab.gpus.machine import driver

pytestmark = pytest.mark.slow
LOADED = driver("595").module
UNIT = "nvidia-fabricmanager.service"
STATES = "nvidia-smi --query-gpu=fabric.state --format=csv,noheader"


def of(version: str) -> dict[str, Any]:
    """What the role is given for a driver."""
    return {
        "nvidia_fabric_manager_packages": [
            {"name": "nvidia-fabricmanager", "version": f"{version}-1"},
            {"name": "libnvidia-nscq", "version": f"{version}-1"},
        ],
        "nvidia_fabric_manager_driver": version,
    }


@pytest.fixture(scope="module")
def hgx(lab, make_target) -> Iterator[Any]:
    """Debian 13 on HGX H100, whose driver runs and whose fabric nobody has brought up; NVIDIA's repository is known."""
    standins = lab.standins()
    made = make_target("hgx", "debian13", gpus="8x-h100-sxm:595")
    made.variables |= {
        "gpustrap_roles": ["nvidia_fabric_manager"],
        "nvidia_fabric_manager_services": [UNIT],
        **of(LOADED),
    }
    uri = f"{standins['gpustrap_nvidia_repository']}/debian13/x86_64"
    made.sh(f"echo 'deb [trusted=yes] {uri} /' >/etc/apt/sources.list.d/cuda.list && apt-get -qq update")
    made.sh("sed -i 's/^\\([0-9]*\\.fabric\\)=.*/\\1=In Progress/' /run/lab-gpu/state")
    yield made
    lab.remove("hgx")


def test_fabricmanager_mismatch_another_driver_is_loaded(hgx):
    """Its unit is left alone until the reboot; started by hand, it says so in NVIDIA's words."""
    waits = hgx.play(**of("590.48.01"))
    assert waits.rc == 0, waits.text
    assert f"driver {LOADED} is loaded, and 590.48.01 is installed" in " ".join(waits.text.split())
    assert hgx.sh(f"systemctl is-active {UNIT}", rc=3) == "inactive"
    said = f"interface version 590.48.01 don't match with driver version {LOADED}"
    assert said in hgx.sh("nv-fabricmanager -c x 2>&1", rc=1)
    assert set(hgx.sh(STATES).splitlines()) == {"In Progress"}


def test_fabric_manager_of_the_drivers_version_brings_the_fabric_up(hgx):
    first = hgx.play()
    assert first.rc == 0, first.text
    assert hgx.sh(f"systemctl is-active {UNIT}") == "active"
    assert hgx.sh(f"systemctl is-enabled {UNIT}") == "enabled"
    assert hgx.sh("dpkg-query -W -f '${Version}' nvidia-fabricmanager") == f"{LOADED}-1"
    assert hgx.sh(STATES).splitlines() == ["Completed"] * 8
    again = hgx.play()
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text


def test_fabric_comes_up_again_after_a_reboot(hgx, lab):
    lab.reboot("hgx")
    assert hgx.sh(f"systemctl is-active {UNIT}") == "active"
    assert hgx.sh(STATES).splitlines() == ["Completed"] * 8
