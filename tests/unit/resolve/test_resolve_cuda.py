"""CUDA toolkit, cuDNN and NCCL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustrap.resolve.gpu.cuda import plan_cuda

GTX_1080_TI, V100, RTX_3090, B300 = "1b06", "1db1", "2204", "3182"


def values(part):
    return {choice.item: choice.value for choice in part.choices}


def versions(part):
    return {p["name"]: p["version"] for p in part.variables["cuda_toolkit_packages"]}


def codes(part):
    return [finding.code for finding in part.findings]


def said(part, item):
    return "\n".join(next(r for r in part.reasoning if r.item == item).sentences)


def test_newest_toolkit_that_the_driver_knows_all_of(node):
    part = plan_cuda(node().stack())
    assert values(part)["cuda"] == "13.0"
    assert part.variables["cuda_toolkit_version"] == "13.0"
    assert part.variables["cuda_toolkit_prefix"] == "/usr/local/cuda-13.0"
    assert part.variables["cuda_toolkit_repository"]["uri"].endswith("/ubuntu2404/x86_64")
    assert part.variables["cuda_toolkit_key"]["fingerprints"] == ["EB693B3035CD5710E231E123A4B469963BF863CC"]
    assert [r.name for r in part.repositories] == ["ubuntu2404"]
    assert "13.4, 13.3, 13.2, 13.1: newer than driver branch 580 knows" in said(part, "cuda")
    assert "13.5: what the catalog says of it is recalled" in said(part, "cuda")
    assert not part.findings


def test_metapackages_that_pull_a_driver_are_never_planned(node):
    for gpus in ([GTX_1080_TI], [RTX_3090]):
        names = versions(plan_cuda(node(gpus=gpus).stack()))
        assert not {"cuda", "cuda-drivers"} & names.keys()
        assert all(name.startswith(("cuda-toolkit-", "libcudnn", "libnccl")) for name in names)


@pytest.mark.parametrize("gpus", [[GTX_1080_TI], [V100], [RTX_3090, GTX_1080_TI]])
def test_below_turing_never_cuda_13_and_never_a_cudnn_that_is_too_new(node, gpus):
    part = plan_cuda(node(gpus=gpus).stack())
    assert values(part)["cuda"] == "12.9"
    assert values(part)["cudnn"] == "9.10.2.21"
    assert versions(part)["libcudnn9-cuda-12"] == "9.10.2.21-1"
    assert versions(part)["libnccl2"].endswith("+cuda12.9")
    assert "it does not compile for 1 x" in said(part, "cuda")
    assert "needs compute capability 7.5, more than 1 x" in said(part, "cudnn")


def test_negative_pin_only_where_the_driver_is_the_distributions(node):
    assert plan_cuda(node().stack()).variables["cuda_toolkit_driver_pin"] is True
    theirs = node(driver=("580", "open", "nvidia"))
    assert plan_cuda(theirs.stack()).variables["cuda_toolkit_driver_pin"] is False


def test_none_asked_for(node):
    part = plan_cuda(node().stack(cuda_version="none"))
    assert values(part) == {"cuda": "none"}
    assert part.variables is None
    assert not part.findings


def test_libraries_can_be_left_out(node):
    part = plan_cuda(node().stack(cudnn=False, nccl=False))
    assert values(part) == {"cuda": "13.0"}
    assert list(versions(part)) == ["cuda-toolkit-13-0"]


def test_asked_for_and_older(node):
    part = plan_cuda(node().stack(cuda_version="12.9"))
    assert values(part)["cuda"] == "12.9"
    assert versions(part)["libcudnn9-cuda-12"] > "9.2"
    assert "gpustrap_cuda_version asks for it" in part.choices[0].reason


def test_asked_for_and_newer_runs_by_minor_version_compatibility(node):
    part = plan_cuda(node().stack(cuda_version="13.3"))
    assert values(part)["cuda"] == "13.3"
    assert codes(part) == ["cuda-minor-compatibility"]
    assert "13.0" in part.findings[0].message


@pytest.mark.parametrize(
    ("wish", "fields", "message", "evidence", "ways"),
    [
        (
            "13.0",
            {"gpus": [RTX_3090, GTX_1080_TI]},
            "it does not compile for 1 x GeForce GTX 1080 Ti (compute capability 6.1)",
            "GeForce GTX 1080 Ti (0000:02:00.0): compute capability 6.1",
            ('set gpustrap_cuda_version to "12.9"', "auto", "take 1 x GeForce GTX 1080 Ti out of the node"),
        ),
        (
            "12.8",
            {"gpus": [B300]},
            "it does not compile for 1 x B300",
            "compiles for",
            ('"13.0"',),
        ),
        (
            "13.0",
            {"distro": ("debian", "13"), "driver": ("550", "open", "distribution"), "version": "550.163.01"},
            "it needs driver branch 580 or newer, and the driver is of 550",
            "driver branch 550 knows CUDA up to 12.4",
            ('set gpustrap_driver_branch to "580" or newer',),
        ),
        ("14.7", {}, "the catalog knows no such toolkit", "13.0", ("auto",)),
        (
            "12.9",
            {"distro": ("debian", "12"), "architecture": "aarch64"},
            "NVIDIA has no repository for Debian 12 on aarch64",
            "catalog: cuda, 12.9",
            ("auto",),
        ),
        (
            "12.9",
            {"can_have": {"cuda-toolkit-13-0": ["13.0.3-1"]}},
            "NVIDIA's repository, as the node reads it, does not have it",
            "catalog: cuda, 12.9",
            ('"13.0"',),
        ),
    ],
)
def test_what_cannot_be_is_refused(node, wish, fields, message, evidence, ways):
    if fields.get("distro") == ("debian", "12"):
        fields = {**fields, "driver": ("535", "open", "distribution"), "version": "535.261.03"}
    part = plan_cuda(node(**fields).stack(cuda_version=wish))
    (problem,) = part.problems
    assert problem.code == "cuda-unfit"
    assert problem.message.startswith(f"gpustrap_cuda_version is {wish}: ")
    assert message in problem.message
    assert evidence in problem.evidence
    for way in ways:
        assert way in problem.remedy
    assert not part.choices
    assert part.variables is None


def test_distribution_without_a_known_toolkit_gets_none_and_a_way_to_ask(node, catalog):
    unread = tuple(t.model_copy(update={"repositories": ()}) for t in catalog.cuda.toolkits)
    bare = replace(catalog, cuda=catalog.cuda.model_copy(update={"toolkits": unread}))
    part = plan_cuda(node().stack(bare))
    assert values(part) == {"cuda": "none"}
    assert codes(part) == ["cuda-none"]
    assert part.variables is None
    assert '"13.0"' in part.findings[0].advice
    asked = plan_cuda(node().stack(bare, cuda_version="13.0"))
    assert values(asked)["cuda"] == "13.0"
    assert asked.choices[0].confidence == "recalled"


def test_without_native_toolkit_the_newest_by_minor_version_compatibility(node, catalog):
    toolkits = tuple(
        t.model_copy(update={"repositories": ("ubuntu2404",) if t.version in {"13.1", "13.2"} else ()})
        for t in catalog.cuda.toolkits
    )
    changed = replace(catalog, cuda=catalog.cuda.model_copy(update={"toolkits": toolkits}))
    part = plan_cuda(node().stack(changed))
    assert values(part)["cuda"] == "13.2"
    assert codes(part) == ["cuda-minor-compatibility"]


def test_driver_older_than_the_toolkit_within_its_branch_is_not_native(node):
    part = plan_cuda(node(version="580.50.01").stack(cuda_version="13.0"))
    assert codes(part) == ["cuda-minor-compatibility"]


def test_versions_that_the_node_knows_come_before_the_catalogs(node):
    can_have = {
        "cuda-toolkit-13-0": ["13.0.9-1", "13.0.3-1"],
        "libcudnn9-cuda-13": ["9.99.0.1-1", "9.27.0.42-1"],
        "libcudnn9-dev-cuda-13": ["9.99.0.1-1", "9.27.0.42-1"],
        "libcudnn9-headers-cuda-13": ["9.99.0.1-1", "9.27.0.42-1"],
        "libnccl2": ["2.99.1-1+cuda13.9", "2.99.1-1+cuda12.9"],
        "libnccl-dev": ["2.99.1-1+cuda13.9", "2.99.1-1+cuda12.9"],
    }
    part = plan_cuda(node(can_have=can_have).stack())
    assert versions(part) == {name: known[0] for name, known in can_have.items()}
    assert "the newest that the node's package manager knows" in part.choices[0].reason
    assert part.choices[0].confidence == "verified"
    older = plan_cuda(node(gpus=[GTX_1080_TI], can_have=can_have | {"cuda-toolkit-12-9": ["12.9.2-1"]}).stack())
    assert versions(older)["libnccl2"] == "2.99.1-1+cuda12.9"


def test_node_knows_a_cudnn_that_its_gpus_cannot_use(node):
    names = ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12", "libcudnn9-headers-cuda-12")
    part = plan_cuda(node(gpus=[V100], can_have=dict.fromkeys(names, ("9.24.0.43-1", "9.10.1.4-1"))).stack())
    assert versions(part)["libcudnn9-cuda-12"] == "9.10.1.4-1"


def test_distributions_own_nccl_is_not_taken(node):
    can_have = {"libnccl2": ["2.22.3-1"], "libnccl-dev": ["2.22.3-1"]}
    assert versions(plan_cuda(node(can_have=can_have).stack()))["libnccl2"].startswith("2.32.3-1+cuda13")


def test_no_library_for_all_gpus_is_a_warning(node, catalog):
    part = plan_cuda(node(gpus=[GTX_1080_TI]).stack(replace(catalog, libraries=())))
    assert codes(part) == ["cudnn-none", "nccl-none"]
    assert values(part) == {"cuda": "12.9", "cudnn": "none", "nccl": "none"}
    assert list(versions(part)) == ["cuda-toolkit-12-9"]


def test_locked_toolkit_and_libraries_stay_until_upgrade(node):
    older = node(can_have={"cuda-toolkit-12-9": ["12.9.1-1"]})
    first = plan_cuda(older.stack())
    assert versions(first)["cuda-toolkit-12-9"] == "12.9.1-1"
    newer = {"cuda-toolkit-12-9": ["12.9.2-1", "12.9.1-1"], "cuda-toolkit-13-0": ["13.0.3-1"]}
    kept = plan_cuda(older.again("cuda_toolkit", first, can_have=newer).stack())
    assert kept.variables == first.variables
    assert "13.0 is available: gpustrap plan --upgrade takes it" in kept.choices[0].reason
    assert "12.9.2-1 is available" in kept.choices[0].reason
    upgraded = plan_cuda(older.again("cuda_toolkit", first, can_have=newer, upgrade=("cuda",)).stack())
    assert values(upgraded)["cuda"] == "13.0"


def test_locked_toolkit_that_no_longer_fits_goes(node):
    first = plan_cuda(node().stack())
    moved = node(driver=("550", "open", "distribution"), version="550.163.01", distro=("debian", "13"))
    part = plan_cuda(moved.again("cuda_toolkit", first).stack())
    assert values(part)["cuda"] != "13.0"


def test_libraries_of_another_toolkit_are_not_kept(node):
    first = plan_cuda(node().stack())
    asked = plan_cuda(node().again("cuda_toolkit", first).stack(cuda_version="12.9"))
    assert versions(asked)["libnccl2"].endswith("+cuda12.9")


def test_mirror_takes_the_place_of_the_repository(node):
    part = plan_cuda(node().stack(nvidia_repository="https://mirror.example/cuda", nvidia_key_fingerprints=["AB"]))
    assert part.variables["cuda_toolkit_repository"]["uri"] == "https://mirror.example/cuda/ubuntu2404/x86_64"
    assert part.repositories[0].uri == "https://mirror.example/cuda/ubuntu2404/x86_64"
    assert part.repositories[0].fingerprints == ("AB",)


def test_disk_is_for_what_is_not_there_yet(node):
    part = plan_cuda(node().stack())
    assert {directory for directory, _ in part.disk} == {"/usr/local", "/usr"}
    there = plan_cuda(node(installed=versions(part)).stack())
    assert there.disk == ()


def test_toolkit_that_came_in_no_package_is_told(node):
    tree = {"what": "cuda", "version": "13.0.1", "origin": "tree", "path": "/usr/local/cuda-13.0"}
    assert codes(plan_cuda(node(installs=[tree]).stack())) == ["cuda-not-packaged"]
    package = {"what": "cuda", "version": "13.0.3-1", "origin": "package cuda-toolkit-13-0", "path": ""}
    assert codes(plan_cuda(node(installs=[tree, package]).stack())) == []
    other = tree | {"path": "/usr/local/cuda-12.1"}
    assert codes(plan_cuda(node(installs=[other]).stack())) == []


def test_stand_ins_are_told(node):
    assert all(choice.simulated for choice in plan_cuda(node().stack(simulated=True)).choices)
    assert not any(choice.simulated for choice in plan_cuda(node().stack()).choices)


def test_further_toolkits_stand_beside_the_first(node):
    part = plan_cuda(node().stack(cuda_further_versions=["12.9", "13.0", "12.8", "12.9"]))
    assert values(part)["cuda"] == "13.0"
    assert [item for item in values(part) if item.startswith("cuda")] == ["cuda", "cuda-12.9", "cuda-12.8"]
    assert part.variables["cuda_toolkit_version"] == "13.0"
    assert part.variables["cuda_toolkit_prefix"] == "/usr/local/cuda-13.0"
    assert list(versions(part))[:3] == ["cuda-toolkit-13-0", "cuda-toolkit-12-9", "cuda-toolkit-12-8"]
    assert len([where for where, _size in part.disk if where == "/usr/local"]) == 3


def test_libraries_are_those_of_the_first_toolkit(node):
    part = plan_cuda(node().stack(cuda_version="12.9", cuda_further_versions=["13.0"]))
    assert "libcudnn9-cuda-12" in versions(part)
    assert "libcudnn9-cuda-13" not in versions(part)
    assert versions(part)["libnccl2"].endswith("+cuda12.9")


def test_first_and_further_exchanged_move_the_libraries(node):
    before = node()
    part = plan_cuda(before.stack(cuda_version="13.0", cuda_further_versions=["12.9"]))
    after = plan_cuda(before.again("cuda_toolkit", part).stack(cuda_version="12.9", cuda_further_versions=["13.0"]))
    assert versions(after)["libnccl2"].endswith("+cuda12.9")
    assert versions(after)["cuda-toolkit-13-0"] == versions(part)["cuda-toolkit-13-0"]


def test_further_toolkit_that_cannot_be_is_refused_by_its_own_variable(node):
    part = plan_cuda(node(gpus=[V100]).stack(cuda_further_versions=["13.0", "14.7"]))
    said = [(problem.code, problem.message, problem.remedy) for problem in part.problems]
    assert [code for code, *_ in said] == ["cuda-unfit", "cuda-unfit"]
    assert said[0][1].startswith("gpustrap_cuda_further_versions is 13.0: it does not compile for")
    assert "leave 14.7 out of gpustrap_cuda_further_versions" in said[1][2]
    assert "gpustrap_cuda_version" not in said[1][2]


def test_further_toolkits_need_a_first(node):
    (problem,) = plan_cuda(node().stack(cuda_version="none", cuda_further_versions=["12.9"])).problems
    assert problem.code == "cuda-unfit"
    assert problem.remedy == 'set gpustrap_cuda_version: "12.9"'
