"""Fabric manager, subnet manager, IMEX."""

from __future__ import annotations

import pytest

from gpustrap.resolve.gpu.candidates import all_candidates, candidates
from gpustrap.resolve.gpu.fabric import plan_fabric

RTX_3090, H100_SXM5, B200, GB200 = "2204", "2330", "2901", "2941"
ARCHIVE = "http://archive.ubuntu.com/ubuntu noble/multiverse"
NVIDIAS = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"

ROLE = "nvidia_fabric_manager"


def archive(version):
    return dict.fromkeys(("libnvidia-nscq-580", "nvidia-fabricmanager-580"), (f"{version}-0ubuntu0.24.04.1",))


def packages(part):
    return {p["name"]: p["version"] for p in part.variables["nvidia_fabric_manager_packages"]}


def codes(part):
    return [finding.code for finding in part.findings]


def test_boards_without_a_fabric_need_nothing_and_nothing_is_said(node):
    part = plan_fabric(node(gpus=[RTX_3090] * 8).stack())
    assert (part.choices, part.variables, part.findings, part.reasoning) == ((), None, (), ())


def test_nv_switches_need_the_fabric_manager_of_the_drivers_version(node):
    part = plan_fabric(node(gpus=[H100_SXM5] * 8, switches=4, can_have=archive("580.178.04")).stack())
    assert packages(part) == dict.fromkeys(archive(""), "580.178.04-0ubuntu0.24.04.1")
    assert part.variables["nvidia_fabric_manager_services"] == ["nvidia-fabricmanager.service"]
    assert part.choices[0].value == "580.178.04"
    assert "4 NVSwitches" in part.choices[0].reason


def test_exact_version_is_found_among_older_and_newer_ones(node):
    versions = ("580.200.01-0ubuntu1", "580.178.04-0ubuntu0.24.04.3", "580.95.05-0ubuntu1")
    part = plan_fabric(node(gpus=[H100_SXM5], switches=4, can_have=dict.fromkeys(archive(""), versions)).stack())
    assert set(packages(part).values()) == {"580.178.04-0ubuntu0.24.04.3"}


@pytest.mark.parametrize(
    ("theirs", "way"),
    [
        ("580.173.02", "set gpustrap_driver_version: 580.173.02"),
        ("580.200.01", "gpustrap plan --upgrade --only driver"),
        ("595.71.05", "apt-get update"),
    ],
)
def test_another_version_only_is_refused(node, theirs, way):
    part = plan_fabric(node(gpus=[H100_SXM5] * 8, switches=4, can_have=archive(theirs)).stack())
    assert [p.code for p in part.problems] == ["fabric-manager-mismatch"]
    assert "580.178.04" in part.problems[0].message
    assert theirs in part.problems[0].message
    assert way in part.problems[0].remedy
    assert part.variables is None


def test_locked_one_stays_with_its_driver_when_the_archive_has_moved_on(node):
    first = plan_fabric(node(gpus=[H100_SXM5], switches=4, can_have=archive("580.178.04")).stack())
    later = node(gpus=[H100_SXM5], switches=4, can_have=archive("580.200.01")).again(ROLE, first)
    assert packages(plan_fabric(later.stack())) == packages(first)
    upgraded = later.again(ROLE, first, upgrade=["driver"], version="580.200.01")
    assert set(packages(plan_fabric(upgraded.stack())).values()) == {"580.200.01-0ubuntu0.24.04.1"}


def test_installed_one_of_the_right_version_will_do(node):
    installed = {name: known[0] for name, known in archive("580.178.04").items()}
    part = plan_fabric(node(gpus=[H100_SXM5], switches=4, installed=installed, can_have=archive("580.200.01")).stack())
    assert packages(part) == installed


def test_archive_that_knows_nothing_is_refused_but_not_offline(node):
    part = plan_fabric(node(gpus=[H100_SXM5], switches=4).stack())
    assert [p.code for p in part.problems] == ["package-unavailable"]
    part = plan_fabric(node(gpus=[H100_SXM5], switches=4, offline=True).stack())
    assert set(packages(part).values()) == {""}
    assert "version open" in part.choices[0].reason
    part = plan_fabric(node(gpus=[H100_SXM5], switches=4, offline=True, version="").stack())
    assert part.choices[0].value == "580 (version open)"


def test_nvidias_repository_is_of_the_drivers_version_before_the_node_knows_it(node):
    fields = {"gpus": [H100_SXM5], "switches": 4, "driver": ("595", "open", "nvidia"), "version": "595.91.07"}
    part = plan_fabric(node(**fields).stack())
    assert packages(part)["nvidia-fabricmanager"] == "595.91.07-1ubuntu1"


def test_fabric_manager_of_another_origin_does_not_count(node):
    fields = {"gpus": [H100_SXM5], "switches": 4, "driver": ("595", "open", "nvidia"), "version": "595.91.07"}
    theirs = {"nvidia-fabricmanager": ("595.71.05-0ubuntu1",)}
    part = plan_fabric(node(**fields, can_have=theirs, origins=dict.fromkeys(theirs, ARCHIVE)).stack())
    assert packages(part)["nvidia-fabricmanager"] == "595.91.07-1ubuntu1"
    part = plan_fabric(node(**fields, can_have=theirs, origins=dict.fromkeys(theirs, NVIDIAS)).stack())
    assert [p.code for p in part.problems] == ["fabric-manager-mismatch"]


def test_older_one_on_the_node_is_no_reason_against_a_newer_one(node):
    fields = {"gpus": [H100_SXM5], "switches": 4, "driver": ("595", "open", "nvidia"), "version": "595.91.07"}
    part = plan_fabric(node(**fields, installed={"nvidia-fabricmanager": "590.48.01-1ubuntu1"}).stack())
    assert packages(part)["nvidia-fabricmanager"] == "595.91.07-1ubuntu1"


def test_nvlink5_needs_the_subnet_manager_too(node):
    fields = {"gpus": [B200] * 8, "driver": ("595", "open", "nvidia"), "version": "595.91.07"}
    part = plan_fabric(node(**fields, can_have={"nvlsm": ("2025.10.11-1",)}).stack())
    assert packages(part)["nvidia-fabricmanager"] == "595.91.07-1ubuntu1"
    assert packages(part)["nvlsm"] == "2025.10.11-1"
    assert packages(part)["libnvsdm"] == "595.91.07-1ubuntu1"
    assert packages(part)["infiniband-diags"] == ""
    assert part.variables["nvidia_fabric_manager_services"] == ["nvidia-fabricmanager.service"]
    assert codes(part) == []
    assert "infiniband-diags" in part.choices[0].reason


def test_version_that_is_the_drivers_by_rule_alone_is_recalled(node):
    fields = {"gpus": [B200] * 8, "driver": ("595", "open", "nvidia"), "version": "595.90.01"}  # nobody saw that one
    part = plan_fabric(node(**fields).stack())
    assert part.choices[0].confidence == "recalled"
    can_have = {name: (version or "1",) for name, version in packages(part).items()}
    assert plan_fabric(node(**fields, can_have=can_have).stack()).choices[0].confidence == "verified"
    del can_have["nvidia-fabricmanager"]
    assert plan_fabric(node(**fields, can_have=can_have).stack()).choices[0].confidence == "recalled"


def test_what_rests_on_a_recalled_repository_is_recalled(node):
    fields = {"gpus": [GB200] * 4, "driver": ("595", "open", "nvidia"), "version": "595.91.07"}
    assert plan_fabric(node(**fields).stack()).choices[0].confidence == "verified"
    old = node(**fields, architecture="aarch64", distro=("ubuntu", "22.04")).stack()  # nobody has read its key
    assert plan_fabric(old).choices[0].confidence == "recalled"


def test_rack_needs_imex_and_no_fabric_manager(node):
    fields = {"gpus": [GB200] * 4, "driver": ("595", "open", "nvidia"), "version": "595.91.07"}
    part = plan_fabric(node(**fields).stack())
    assert packages(part) == {"nvidia-imex": "595.91.07-1ubuntu1"}
    assert part.variables["nvidia_fabric_manager_services"] == ["nvidia-imex.service"]
    assert part.choices[0].value == "595.91.07, IMEX"


@pytest.mark.parametrize(
    ("virtualization", "expected"),
    [("kvm", ["fabric-manager-on-host"]), ("none", []), ("unknown", []), ("podman", [])],
)
def test_switchable_boards_without_switches(node, virtualization, expected):
    part = plan_fabric(node(gpus=[H100_SXM5], virtualization=virtualization).stack())
    assert codes(part) == expected
    assert part.choices[0].value == "none"
    assert part.variables is None


def test_driver_without_what_nvlink_needs_is_no_candidate(node):
    stack = node(gpus=[B200] * 8).stack()
    fitting = candidates(stack.inputs, stack.gpus)
    assert {c.packages.origin for c in fitting} == {"nvidia"}
    ours = next(c for c in all_candidates(stack.inputs, stack.gpus) if c.packages.origin == "distribution")
    assert "no subnet manager is known" in ours.unfit
    assert any(c.packages.origin == "distribution" for c in candidates(node().stack().inputs, node().stack().gpus))


def test_fm_b200_ib(node):
    """The subnet manager works through ib_umad: Ubuntu has it in a package, elsewhere a person is told to look."""
    fields = {"gpus": [B200] * 8, "driver": ("595", "open", "nvidia"), "version": "595.91.07"}
    ubuntu = plan_fabric(node(**fields).stack())
    assert ubuntu.variables[f"{ROLE}_kernel_packages"] == ["linux-modules-extra-{kernel}"]
    assert ubuntu.variables[f"{ROLE}_kernel_modules"] == ["ib_umad"]
    debian = plan_fabric(node(**fields, distro=("debian", "13")).stack())
    assert debian.variables[f"{ROLE}_kernel_packages"] == []
    assert debian.variables[f"{ROLE}_kernel_modules"] == ["ib_umad"]
    assert codes(debian) == ["nvlink5-needs-ib-umad"]
    assert "modinfo -k 6.8.0-90-generic ib_umad" in debian.findings[0].advice
    switches = plan_fabric(node(gpus=[H100_SXM5] * 8, switches=4, can_have=archive("580.178.04")).stack())
    assert f"{ROLE}_kernel_modules" not in switches.variables


@pytest.mark.parametrize("gpus", [[RTX_3090], [H100_SXM5]])
def test_fabric_manager_left_on_a_node_without_switches(node, gpus):
    left = {"nvidia-fabricmanager-575": "575.57.08-0ubuntu1"}
    part = plan_fabric(node(gpus=gpus, installed=left).stack())
    assert codes(part) == ["fabric-manager-left"]
    assert "apt-get remove nvidia-fabricmanager-575" in part.findings[0].advice
    assert part.variables is None
    there = plan_fabric(node(gpus=[H100_SXM5] * 8, switches=4, installed=left, can_have=archive("580.178.04")).stack())
    assert codes(there) == []
