"""Frameworks: never a build without code for every GPU of the node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustrap.resolve.gpu.frameworks import plan_frameworks
from gpustrap.resolve.gpu.wheel_fit import runs_on

GTX_1080_TI, V100, RTX_3090, H100_PCIE, RTX_5090, GB10 = "1b06", "1db1", "2204", "2331", "2b85", "2e12"
PROPRIETARY = ("580", "proprietary", "distribution")
DEBIAN_13 = {"distro": ("debian", "13"), "driver": ("550", "open", "distribution"), "version": "550.163.01"}


def environments(part):
    return {e["name"]: e for e in part.variables["ml_environments_environments"]} if part.variables else {}


def codes(part):
    return [finding.code for finding in part.findings]


def said(part, item):
    return "\n".join(next(r for r in part.reasoning if r.item == item).sentences)


def only(catalog, framework, **change):
    """The catalog with one build of a framework, changed."""
    row = next(w for w in catalog.wheels if w.framework == framework and "x86_64" in w.compute)
    return replace(catalog, wheels=(row.model_copy(update=change),))


def test_latest_policy_takes_the_newest_python(node):
    part = plan_frameworks(node().stack(policy="latest"))
    assert environments(part)["torch"]["python"] == "3.15"
    assert "Python 3.15: the newest" in said(part, "torch")


def test_newest_build(node):
    part = plan_frameworks(node().stack())
    assert environments(part) == {
        "torch": {
            "name": "torch",
            "framework": "torch",
            "version": "2.14.0",
            "python": "3.13",
            "requirement": "torch==2.14.0",
            "constraints": [],
            "index": "https://download.pytorch.org/whl/cu130",
        }
    }
    assert part.choices[0].value == "2.14.0 cu130"
    assert [directory for directory, _ in part.disk] == ["/opt/conda"]
    assert "2.15.0 cu132: its CUDA 13.2 is newer than driver branch 580 knows" in said(part, "torch")
    assert codes(part) == []


def test_newest_of_all_runs_by_minor_version_compatibility(node):
    part = plan_frameworks(node().stack(policy="latest"))
    assert part.choices[0].value == "2.15.0 cu132"
    assert "minor-version compatibility of CUDA 13" in said(part, "torch")
    assert [(f.code, f.severity) for f in part.findings] == [("wheel-minor-compatibility", "note")]
    stable = plan_frameworks(node().again("ml_environments", part).stack())
    assert stable.variables == part.variables
    assert "locked; 2.14.0 cu130 would be chosen now: gpustrap plan --upgrade" in stable.choices[0].reason


def test_ptx_of_which_failures_are_told_is_a_warning(node, catalog):
    code = {"compute": {"x86_64": ("8.0",)}, "ptx": "9.0", "cuda": "13.0", "ptx_fails": "example/example#1"}
    part = plan_frameworks(node(gpus=[RTX_5090]).stack(only(catalog, "torch", **code)))
    assert [(f.code, f.severity) for f in part.findings] == [("wheel-ptx-fails", "warning")]
    assert "GeForce RTX 5090" in part.findings[0].message
    assert "example/example#1" in part.findings[0].message
    assert part.choices[0].confidence == "recalled"
    part = plan_frameworks(node(gpus=[RTX_3090]).stack(only(catalog, "torch", **code)))
    assert (codes(part), part.choices[0].confidence) == ([], "verified")


@pytest.mark.parametrize("gpus", [[GTX_1080_TI], [V100], [RTX_3090, GTX_1080_TI]])
def test_before_turing(node, gpus):
    part = plan_frameworks(node(gpus=gpus, driver=PROPRIETARY).stack(frameworks=["torch", "tensorflow", "jax"]))
    found = environments(part)
    assert found["torch"]["requirement"] == "torch==2.14.0"
    assert found["torch"]["index"].endswith("/cu126")
    assert found["tensorflow"]["constraints"] == ["nvidia-cudnn-cu12<9.11"]
    assert found["jax"]["requirement"].startswith("jax[cuda12]")
    assert found["jax"]["constraints"] == ["nvidia-cudnn-cu12<9.11"]
    assert "torch 2.15.0 cu132: no code for 1 x" in said(part, "torch")


def test_turing_and_later_need_no_constraint(node, catalog):
    turned = replace(catalog, wheels=catalog.wheels[::-1])
    found = environments(plan_frameworks(node().stack(turned, frameworks=["tensorflow", "jax"])))
    assert [e["constraints"] for e in found.values()] == [[], []]


def test_driver_too_old_for_cuda_13(node):
    part = plan_frameworks(node(**DEBIAN_13).stack())
    assert part.choices[0].value == "2.14.0 cu126"
    assert "it needs driver branch 580 or newer (CUDA 13.2)" in said(part, "torch")


def test_arm_server_gets_a_build_for_it(node):
    part = plan_frameworks(node(gpus=[GB10], architecture="aarch64").stack())
    assert part.choices[0].value == "2.14.0 cu130"  # of 2.15.0, nobody read what it has code for
    assert "2.15.0 cu132: recalled, not verified" in said(part, "torch")


def test_no_build_is_refused_where_it_was_asked_for(node):
    part = plan_frameworks(node(gpus=[GTX_1080_TI, RTX_3090], driver=PROPRIETARY).stack(frameworks=["vllm"]))
    (problem,) = part.problems
    assert problem.code == "no-wheel"
    assert "1 x GeForce GTX 1080 Ti, 1 x GeForce RTX 3090" in problem.message
    assert "vllm 0.33.0 cu130: no code for 1 x GeForce GTX 1080 Ti (6.1)" in problem.evidence
    assert "take 1 x GeForce GTX 1080 Ti out of the node" in problem.remedy
    assert "take 1 x GeForce RTX 3090" not in problem.remedy
    assert "leave vllm out of gpustrap_frameworks" in problem.remedy


def test_newer_driver_is_a_way_out(node):
    part = plan_frameworks(node(**DEBIAN_13).stack(frameworks=["vllm"]))
    assert 'set gpustrap_driver_branch to "580" or newer' in part.problems[0].remedy
    assert "CUDA 13.0" in part.problems[0].evidence


def test_no_build_of_the_default_is_a_warning(node, catalog):
    part = plan_frameworks(node().stack(only(catalog, "torch", compute={"x86_64": ("9.0",)})))
    assert not part.problems
    assert codes(part) == ["no-wheel"]
    assert part.findings[0].severity == "warning"
    assert part.choices[0].value == "none"
    assert part.variables is None


def test_no_build_for_the_machine(node):
    part = plan_frameworks(node(architecture="aarch64").stack(frameworks=["tensorflow"]))
    assert part.problems[0].code == "no-wheel"
    assert "has no tensorflow for aarch64" in part.problems[0].evidence


def test_recalled_build_only_where_no_verified_one_fits_and_it_is_told(node, catalog):
    row = next(w for w in catalog.wheels if w.variant == "cu132" and "x86_64" in w.compute)
    older = row.model_copy(update={"version": "2.14.9", "requirement": "torch==2.14.9"})
    newest = row.model_copy(update={"confidence": "recalled"})
    later = node(driver=("595", "open", "distribution"), version="595.71.05")
    part = plan_frameworks(later.stack(replace(catalog, wheels=(newest, older))))
    assert part.choices[0].value == "2.14.9 cu132"
    assert codes(part) == []
    part = plan_frameworks(later.stack(replace(catalog, wheels=(newest,))))
    assert part.choices[0].confidence == "recalled"
    assert codes(part) == ["wheel-recalled"]


def test_ptx_only_where_the_driver_knows_its_cuda(node, catalog):
    code = {"compute": {"x86_64": ("8.0",)}, "ptx": "9.0", "cuda": "13.0"}
    part = plan_frameworks(node(gpus=[RTX_5090]).stack(only(catalog, "torch", **code)))
    assert codes(part) == ["wheel-only-ptx"]
    assert "GeForce RTX 5090" in part.findings[0].message
    part = plan_frameworks(node(gpus=[RTX_5090]).stack(only(catalog, "torch", **code | {"cuda": "13.2"})))
    assert codes(part) == ["no-wheel"]
    part = plan_frameworks(node(gpus=[RTX_3090]).stack(only(catalog, "torch", **code)))
    assert codes(part) == []


def test_own_floor_of_a_build(node, catalog):
    part = plan_frameworks(node().stack(only(catalog, "torch", driver_min="595"), frameworks=["torch", "torch"]))
    assert "it needs driver branch 595 or newer" in part.problems[0].evidence


def test_same_release_with_cuda_that_the_driver_knows_comes_first(node, catalog):
    row = next(w for w in catalog.wheels if w.variant == "cu132" and "x86_64" in w.compute)
    both = tuple(row.model_copy(update={"variant": v, "cuda": c}) for v, c in (("cu132", "13.2"), ("cu130", "13.0")))
    assert plan_frameworks(node().stack(replace(catalog, wheels=both))).choices[0].value == "2.15.0 cu130"
    newer = node(driver=("595", "open", "distribution"), version="595.71.05")
    assert plan_frameworks(newer.stack(replace(catalog, wheels=both))).choices[0].value == "2.15.0 cu132"


def test_none_without_conda_and_a_word_only_where_somebody_asked(node):
    assert plan_frameworks(node().stack(conda=False)).findings == ()
    part = plan_frameworks(node().stack(conda=False, frameworks=["jax"]))
    assert codes(part) == ["frameworks-need-conda"]
    assert part.variables is None
    assert plan_frameworks(node().stack(frameworks=[])).choices == ()


def test_locked_build_stays_until_upgrade(node, catalog):
    rows = {w.version: w for w in catalog.wheels if w.framework == "torch" and "x86_64" in w.compute}
    before = plan_frameworks(node().stack(replace(catalog, wheels=(rows["2.13.0"],))))
    kept = plan_frameworks(node().again("ml_environments", before).stack())
    assert kept.variables == before.variables
    assert "2.14.0 cu130 is available: gpustrap plan --upgrade" in kept.choices[0].reason
    more = rows["2.13.0"].model_copy(update={"pythons": (*rows["2.13.0"].pythons, "3.99")})
    python = plan_frameworks(node().again("ml_environments", before).stack(replace(catalog, wheels=(more,))))
    assert python.variables == before.variables
    upgraded = plan_frameworks(node().again("ml_environments", before, upgrade=("frameworks",)).stack())
    assert upgraded.choices[0].value == "2.14.0 cu130"
    older = node().again("ml_environments", before, driver=DEBIAN_13["driver"], distro=("debian", "13"))
    assert plan_frameworks(older.stack()).choices[0].value == "2.14.0 cu126"


@pytest.mark.parametrize(
    ("compute", "wanted", "expected"),
    [
        (("8.0",), "8.6", True),
        (("8.6",), "8.0", False),
        (("8.0",), "9.0", False),
        (("12.0",), "12.1", True),
        (("7.0", "7.5"), "7.0", True),
        ((), "8.0", False),
    ],
)
def test_machine_code_runs_within_its_major_on_the_same_or_a_later_minor(compute, wanted, expected):
    assert runs_on(compute, wanted) is expected
