"""Environments: never a build without code for each of their GPUs, nor a Python that the node cannot have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustrap.resolve.environments.fit import runs_on
from gpustrap.resolve.environments.plan import plan_environments

GTX_1080_TI, V100, RTX_3090, RTX_5090, GB10 = "1b06", "1db1", "2204", "2b85", "2e12"
PROPRIETARY = ("580", "proprietary", "distribution")
DEBIAN_13 = {"distro": ("debian", "13"), "driver": ("550", "open", "distribution"), "version": "550.163.01"}
JAMMY = {"distro": ("ubuntu", "22.04")}


def plan(stack):
    return plan_environments(stack.inputs, stack)


def on_processor(stack):
    return plan_environments(stack.inputs, None)


def environments(part):
    return {e["name"]: e for e in part.variables["ml_environments_environments"]} if part.variables else {}


def build(part, name="torch"):
    found = environments(part)[name]
    return f"{found['version']} {found['variant']}"


def python(part, name="torch"):
    found = environments(part)[name]
    return f"{found['python']} {found['interpreter']}"


def codes(part):
    return [finding.code for finding in part.findings]


def said(part, name="torch"):
    return "\n".join(next(r for r in part.reasoning if r.item == f"environment-{name}").sentences)


def wish(framework, **more):
    return {"name": framework, "framework": framework, **more}


def only(catalog, framework, **change):
    """The catalog with one build of a framework for GPUs, changed."""
    row = next(w for w in catalog.wheels if w.framework == framework and w.cuda and "x86_64" in w.compute)
    return replace(catalog, wheels=(row.model_copy(update=change),))


def test_default_is_the_newest_build_and_the_distributions_python(node):
    part = plan(node().stack())
    assert environments(part) == {
        "torch": {
            "name": "torch",
            "framework": "pytorch",
            "version": "2.14.0",
            "variant": "cu130",
            "engine": "uv",
            "python": "3.12",
            "interpreter": "distribution",
            "users": "all",
            "jupyter": False,
            "requirements": ["torch==2.14.0"],
            "constraints": [],
            "index": "https://download.pytorch.org/whl/cu130",
            "channels": [],
            "cuda": "13.0",
            "compute": ["8.6"],
            "modules": ["torch"],
            "gpus": [],
            "size": 8_000_000_000,
            "lock": "",
            "digest": "",
        }
    }
    assert part.choices[0].value == "pytorch 2.14.0 cu130, Python 3.12"
    assert part.disk == (("/opt/gpustrap/envs", 8_000_000_000),)
    assert "2.15.0 cu132: its CUDA 13.2 is newer than driver branch 580 knows" in said(part)
    assert codes(part) == []


def test_variables_of_the_role(node):
    request = {
        "environments_prefix": "/data/envs",
        "python_index": "https://mirror.example/simple",
        "pytorch_index": "https://mirror.example/whl/",
        "python_mirror": "https://mirror.example/python",
        "ca_bundle": "/etc/ssl/site.pem",
        "proxy": {"https": "http://proxy.example:3128"},
    }
    variables = dict(plan(node().stack(**request)).variables)
    (environment,) = variables.pop("ml_environments_environments")
    assert environment["index"] == "https://mirror.example/whl/cu130"
    uv = variables.pop("ml_environments_uv")
    assert uv["file"].startswith(f"uv-{uv['version']}-py3-none-manylinux")
    assert uv["file"].endswith("x86_64.whl")
    assert len(uv["sha256"]) == 64
    assert variables == {
        "ml_environments_prefix": "/data/envs",
        "ml_environments_index": "https://mirror.example/simple",
        "ml_environments_python_mirror": "https://mirror.example/python",
        "ml_environments_ca_bundle": "/etc/ssl/site.pem",
        "ml_environments_proxy": {"https": "http://proxy.example:3128"},
        "ml_environments_conda_prefix": "/opt/conda",
    }
    plain = plan(node().stack()).variables
    assert plain["ml_environments_index"] == ""
    assert (plain["ml_environments_python_mirror"], plain["ml_environments_ca_bundle"]) == ("", "")


def test_an_item_with_everything(node):
    asked = wish(
        "tensorflow",
        name="course",
        python="3.12",
        extras=["keras>=3", "pandas"],
        users="students",
        requirements="requirements/course.txt",
        jupyter=True,
        gpus=["RTX 5090"],
    )
    part = plan(node(gpus=[RTX_3090, RTX_5090]).stack(environments=[asked]))
    found = environments(part)["course"]
    assert found["requirements"] == [
        "tensorflow[and-cuda]==2.21.0",
        "keras>=3",
        "pandas",
        "ipykernel",
        "-r requirements/course.txt",
    ]
    assert (found["users"], found["jupyter"], found["modules"]) == ("students", True, ["tensorflow"])
    assert (found["gpus"], found["compute"]) == (["0000:02:00.0"], ["12.0"])


def test_newest_of_all_runs_by_minor_version_compatibility(node):
    part = plan(node().stack(policy="latest"))
    assert build(part) == "2.15.0 cu132"
    assert "minor-version compatibility of CUDA 13" in said(part)
    assert [(f.code, f.severity) for f in part.findings] == [("wheel-minor-compatibility", "note")]
    stable = plan(node().again("ml_environments", part).stack())
    assert stable.variables == part.variables
    assert "locked; 2.14.0 cu130 would be chosen now: gpustrap plan --upgrade" in stable.choices[0].reason


def test_ptx_of_which_failures_are_told_is_a_warning(node, catalog):
    code = {"compute": {"x86_64": ("8.0",)}, "ptx": "9.0", "cuda": "13.0", "ptx_fails": "example/example#1"}
    part = plan(node(gpus=[RTX_5090]).stack(only(catalog, "pytorch", **code)))
    assert [(f.code, f.severity) for f in part.findings] == [("wheel-ptx-fails", "warning")]
    assert "GeForce RTX 5090" in part.findings[0].message
    assert "example/example#1" in part.findings[0].message
    assert part.choices[0].confidence == "recalled"
    part = plan(node(gpus=[RTX_3090]).stack(only(catalog, "pytorch", **code)))
    assert (codes(part), part.choices[0].confidence) == ([], "verified")


@pytest.mark.parametrize("gpus", [[GTX_1080_TI], [V100], [RTX_3090, GTX_1080_TI]])
def test_before_turing(node, gpus):
    part = plan(node(gpus=gpus, driver=PROPRIETARY).stack(environments=["torch", "tensorflow", "jax"]))
    found = environments(part)
    assert found["torch"]["requirements"] == ["torch==2.14.0"]
    assert found["torch"]["index"].endswith("/cu126")
    assert found["tensorflow"]["constraints"] == ["nvidia-cudnn-cu12<9.11"]
    assert found["jax"]["requirements"][0].startswith("jax[cuda12]")
    assert found["jax"]["constraints"] == ["nvidia-cudnn-cu12<9.11"]
    assert "pytorch 2.15.0 cu132: no code for 1 x" in said(part)


def test_turing_and_later_need_no_constraint(node, catalog):
    turned = replace(catalog, wheels=catalog.wheels[::-1])
    found = environments(plan(node().stack(turned, environments=["tensorflow", "jax"])))
    assert [e["constraints"] for e in found.values()] == [[], []]


def test_driver_too_old_for_cuda_13(node):
    part = plan(node(**DEBIAN_13).stack())
    assert build(part) == "2.14.0 cu126"
    assert "it needs driver branch 580 or newer (CUDA 13.2)" in said(part)


def test_arm_server_gets_a_build_for_it(node):
    part = plan(node(gpus=[GB10], architecture="aarch64").stack())
    assert build(part) == "2.14.0 cu130"  # of 2.15.0, nobody read what it has code for
    assert "2.15.0 cu132: recalled, not verified" in said(part)
    assert part.variables["ml_environments_uv"]["file"].endswith("aarch64.whl")


def test_no_build_is_refused_where_it_was_asked_for(node):
    part = plan(node(gpus=[GTX_1080_TI, RTX_3090], driver=PROPRIETARY).stack(environments=["vllm"]))
    (problem,) = part.problems
    assert problem.code == "no-wheel"
    assert "1 x GeForce GTX 1080 Ti, 1 x GeForce RTX 3090" in problem.message
    assert "vllm 0.33.0 cu130: no code for 1 x GeForce GTX 1080 Ti (6.1)" in problem.evidence
    assert "have it for the others only: {name: vllm, framework: vllm, gpus: [GeForce RTX 3090]}" in problem.remedy
    assert "leave vllm out of gpustrap_environments" in problem.remedy


def test_cards_without_a_common_build_can_have_two_environments(node, catalog):
    rows = {w.variant: w for w in catalog.wheels if w.version == "2.14.0" and "x86_64" in w.compute}
    old = rows["cu126"].model_copy(update={"compute": {"x86_64": ("6.0",)}})
    both = replace(catalog, wheels=(old, rows["cu130"]))
    cards = node(gpus=[GTX_1080_TI, RTX_3090, GTX_1080_TI], driver=PROPRIETARY)
    (problem,) = plan(cards.stack(both, environments=[wish("pytorch", name="t")])).problems
    first = "{name: t-1, framework: pytorch, gpus: [GeForce GTX 1080 Ti]}"
    second = "{name: t-2, framework: pytorch, gpus: [GeForce RTX 3090]}"
    assert f"have an environment for each set of GPUs: {first}, {second}" in problem.remedy
    items = [wish("pytorch", name="t-1", gpus=["GeForce GTX 1080 Ti"]), wish("pytorch", name="t-2", gpus=["RTX 3090"])]
    part = plan(cards.stack(both, environments=items))
    assert (build(part, "t-1"), build(part, "t-2")) == ("2.14.0 cu126", "2.14.0 cu130")
    assert environments(part)["t-1"]["gpus"] == ["0000:01:00.0", "0000:03:00.0"]
    assert (environments(part)["t-1"]["compute"], environments(part)["t-2"]["compute"]) == (["6.1"], ["8.6"])


def test_newer_driver_is_a_way_out(node):
    part = plan(node(**DEBIAN_13).stack(environments=["vllm"]))
    assert 'set gpustrap_driver_branch to "580" or newer' in part.problems[0].remedy
    assert "CUDA 13.0" in part.problems[0].evidence


def test_no_build_of_the_default_is_a_warning(node, catalog):
    part = plan(node().stack(only(catalog, "pytorch", compute={"x86_64": ("9.0",)})))
    assert not part.problems
    assert codes(part) == ["no-wheel"]
    assert part.findings[0].severity == "warning"
    assert part.choices[0].value == "none"
    assert part.variables is None


def test_no_build_for_the_machine(node):
    part = plan(node(architecture="aarch64").stack(environments=["tensorflow"]))
    assert part.problems[0].code == "no-wheel"
    assert "has no tensorflow for aarch64" in part.problems[0].evidence


def test_recalled_build_only_where_no_verified_one_fits_and_it_is_told(node, catalog):
    row = next(w for w in catalog.wheels if w.variant == "cu132" and "x86_64" in w.compute)
    older = row.model_copy(update={"version": "2.14.9", "requirement": "torch==2.14.9"})
    newest = row.model_copy(update={"confidence": "recalled"})
    later = node(driver=("595", "open", "distribution"), version="595.71.05")
    part = plan(later.stack(replace(catalog, wheels=(newest, older))))
    assert build(part) == "2.14.9 cu132"
    assert codes(part) == []
    part = plan(later.stack(replace(catalog, wheels=(newest,))))
    assert part.choices[0].confidence == "recalled"
    assert codes(part) == ["wheel-recalled"]


def test_ptx_only_where_the_driver_knows_its_cuda(node, catalog):
    code = {"compute": {"x86_64": ("8.0",)}, "ptx": "9.0", "cuda": "13.0"}
    part = plan(node(gpus=[RTX_5090]).stack(only(catalog, "pytorch", **code)))
    assert codes(part) == ["wheel-only-ptx"]
    assert "GeForce RTX 5090" in part.findings[0].message
    part = plan(node(gpus=[RTX_5090]).stack(only(catalog, "pytorch", **code | {"cuda": "13.2"})))
    assert codes(part) == ["no-wheel"]
    part = plan(node(gpus=[RTX_3090]).stack(only(catalog, "pytorch", **code)))
    assert codes(part) == []


def test_own_floor_of_a_build(node, catalog):
    part = plan(node().stack(only(catalog, "pytorch", driver_min="595"), environments=["pytorch"]))
    assert "it needs driver branch 595 or newer" in part.problems[0].evidence


def test_same_release_with_cuda_that_the_driver_knows_comes_first(node, catalog):
    row = next(w for w in catalog.wheels if w.variant == "cu132" and "x86_64" in w.compute)
    both = tuple(row.model_copy(update={"variant": v, "cuda": c}) for v, c in (("cu132", "13.2"), ("cu130", "13.0")))
    assert build(plan(node().stack(replace(catalog, wheels=both)))) == "2.15.0 cu130"
    newer = node(driver=("595", "open", "distribution"), version="595.71.05")
    assert build(plan(newer.stack(replace(catalog, wheels=both)))) == "2.15.0 cu132"


def test_locked_build_stays_until_upgrade(node, catalog):
    rows = {w.version: w for w in catalog.wheels if w.framework == "pytorch" and w.cuda and "x86_64" in w.compute}
    before = plan(node().stack(replace(catalog, wheels=(rows["2.13.0"],))))
    locked = {**before.variables}
    closed = {"lock": "environments/torch-0123456789ab.txt", "digest": "0" * 64}
    locked["ml_environments_environments"] = [environments(before)["torch"] | closed]
    again = node().again("ml_environments", replace(before, variables=locked))
    kept = plan(again.stack())
    assert kept.variables == before.variables
    assert "2.14.0 cu130 is available: gpustrap plan --upgrade" in kept.choices[0].reason
    more = plan(again.stack(environments=[wish("pytorch", name="torch", extras=["accelerate"])]))
    assert build(more) == "2.13.0 cu130", "what comes besides is no reason to move the framework"
    assert build(plan(again.stack(environments=[wish("jax", name="torch")]))) == "0.12.0.1 cuda13"
    upgraded = plan(replace(again, upgrade=("environments",)).stack())
    assert build(upgraded) == "2.14.0 cu130"
    older = replace(again, driver=DEBIAN_13["driver"], distro=("debian", "13"))
    assert build(plan(older.stack())) == "2.14.0 cu126"


def test_room_is_needed_only_for_what_is_not_built_yet(node):
    before = plan(node().stack())
    (entry,) = before.variables["ml_environments_environments"]
    closed = entry | {"lock": "environments/torch-0123456789ab.txt", "digest": "0123456789abcdef" * 4}
    locked = replace(before, variables={"ml_environments_environments": [closed]})
    here = {"what": "environment", "origin": "lock 0123456789abcdef", "path": "/opt/gpustrap/envs/torch"}
    needed = before.disk
    assert plan(node(installs=[here]).again("ml_environments", locked).stack()).disk == ()
    assert plan(node(installs=[here | {"origin": "lock 0"}]).again("ml_environments", locked).stack()).disk == needed
    assert plan(node().again("ml_environments", locked).stack()).disk == needed
    more = node(installs=[here]).again("ml_environments", locked)
    assert plan(more.stack(environments=[wish("pytorch", name="torch", extras=["accelerate"])])).disk == needed


def test_locked_python_stays(node, catalog):
    part = plan(node().stack(environments=[wish("jax", engine="uv")]))
    entry = environments(part)["jax"] | {"python": "3.13", "interpreter": "conda"}
    locked = replace(part, variables={"ml_environments_environments": [entry]})
    assert python(plan(node().again("ml_environments", locked).stack(environments=["jax"])), "jax") == "3.13 conda"
    without = node().again("ml_environments", locked).stack(environments=["jax"], conda=False)
    assert python(plan(without), "jax") == "3.12 distribution", "the locked one can no longer be had"


def test_locked_uv_stays_until_upgrade(node):
    old = {"version": "0.1.0", "file": "uv-0.1.0-py3-none-manylinux_2_28_x86_64.whl", "sha256": "0" * 64}
    locked = replace(plan(node().stack()), variables={"ml_environments_uv": old})
    part = plan(node().again("ml_environments", locked).stack())
    assert part.variables["ml_environments_uv"] == old
    assert "gpustrap plan --upgrade takes it" in part.choices[-1].reason
    moved = plan(node().again("ml_environments", locked, upgrade=("environments",)).stack())
    assert moved.variables["ml_environments_uv"] != old


@pytest.mark.parametrize(
    ("request_", "wish_", "expected"),
    [
        ({}, {}, "3.14 conda"),
        ({"policy": "latest"}, {}, "3.15 conda"),
        ({}, {"python": "3.12"}, "3.12 conda"),
        ({"conda": False, "python_mirror": "https://mirror.example/python"}, {}, "3.14 uv"),
    ],
)
def test_a_python_from_elsewhere_where_the_distributions_has_no_build(node, request_, wish_, expected):
    """JAX has nothing for Ubuntu 22.04's 3.10."""
    part = plan(node(**JAMMY).stack(environments=[wish("jax", **wish_)], **request_))
    assert python(part, "jax") == expected
    assert environments(part)["jax"]["channels"] == (["conda-forge"] if expected.endswith("conda") else [])


def test_no_python_is_refused_with_the_ways_to_one(node):
    part = plan(node(**JAMMY).stack(environments=["jax"], conda=False))
    (problem,) = part.problems
    assert problem.code == "no-wheel"
    assert problem.message.endswith("no build of jax that is known is for a Python that the node can have")
    assert "builds for Python 3.12 to 3.15, Ubuntu 22.04 has 3.10" in problem.evidence
    assert "set gpustrap_conda: true" in problem.remedy
    (problem,) = plan(node().stack(environments=[wish("jax", python="3.10")])).problems
    assert "and none for 3.10" in problem.evidence
    assert "set python: auto for jax;" in problem.remedy
    assert "gpustrap_conda" not in problem.remedy
    stuck = node(**JAMMY).stack(environments=[wish("jax", python="3.10")], conda=False)
    assert "set python: auto for jax, and gpustrap_conda to true;" in plan(stuck).problems[0].remedy


def test_an_older_build_where_the_newest_has_none_for_a_python_of_the_node(node):
    part = plan(node(**JAMMY, driver=("595", "open", "distribution"), version="595.71.05").stack(conda=False))
    assert (build(part), python(part)) == ("2.14.0 cu130", "3.10 distribution")
    assert "2.15.0 cu132: it has builds for Python 3.11 to 3.15" in said(part)


def test_conda_builds_are_the_channels_own_and_never_for_the_processor(node):
    part = plan(node().stack(environments=[wish("pytorch", engine="conda")]))
    found = environments(part)["pytorch"]
    assert found["requirements"] == ["pytorch ==2.13.0 cuda130*"]
    assert (found["engine"], found["interpreter"], found["channels"]) == ("conda", "conda", ["conda-forge"])
    assert found["cuda"] == "13.0"
    assert codes(part) == ["wheel-recalled"]
    assert python(part, "pytorch") == "3.12 conda"
    newest = plan(node(gpus=["2684"]).stack(environments=[wish("pytorch", engine="conda")], policy="latest"))
    assert python(newest, "pytorch") == "3.13 conda", "the distribution's has no say in it"


def test_engine_conda_needs_conda_and_a_build_of_it(node):
    (problem,) = plan(node().stack(environments=[wish("pytorch", engine="conda")], conda=False)).problems
    assert problem.code == "environment-needs-conda"
    (problem,) = plan(node().stack(environments=[wish("jax", engine="conda")])).problems
    assert problem.code == "no-wheel"
    assert "set engine: uv for jax" in problem.remedy


def test_packages_of_ones_own(node):
    part = plan(node().stack(environments=[wish("python", name="tools", requirements="tools.txt")]))
    found = environments(part)["tools"]
    assert (found["version"], found["variant"], found["index"], found["modules"]) == ("", "", "", [])
    assert found["requirements"] == ["-r tools.txt"]
    assert python(part, "tools") == "3.12 distribution"
    assert part.choices[0].value == "Python 3.12 with tools.txt"
    (problem,) = plan(
        node().stack(environments=[wish("python", name="tools", python="3.14", extras=["numpy"])], conda=False)
    ).problems
    assert problem.code == "python-unavailable"
    assert "set gpustrap_conda: true" in problem.remedy


def test_nodes_without_gpus_get_what_was_asked_for_on_the_processor(node):
    plain = node(gpus=[])
    part = on_processor(plain.stack(environments=["torch", "tensorflow", "jax"]))
    assert [build(part, name) for name in ("torch", "tensorflow", "jax")] == [
        "2.15.0 cpu",
        "2.21.0 cpu",
        "0.12.0.1 cpu",
    ]
    found = environments(part)
    assert found["torch"]["index"] == "https://download.pytorch.org/whl/cpu"
    assert found["tensorflow"]["requirements"] == ["tensorflow==2.21.0"]
    assert found["jax"]["requirements"] == ["jax==0.12.0.1"]
    assert all((e["cuda"], e["compute"]) == ("", []) for e in found.values())
    assert on_processor(plain.stack()).choices == (), "nobody asked"
    (problem,) = on_processor(plain.stack(environments=["vllm"])).problems
    assert "computes without NVIDIA GPUs" in problem.message


def test_gpus_that_other_nodes_have_are_a_note_and_misspelt_ones_a_refusal(node):
    asked = [wish("jax", name="old", gpus=["GTX 1080 Ti"]), wish("jax", name="new", gpus=["0000:01:00.0"])]
    part = plan(node().stack(environments=asked))
    assert list(environments(part)) == ["new"]
    assert codes(part) == ["environment-without-gpus"]
    (problem,) = plan(node().stack(environments=[wish("jax", gpus=["RTX 3900"])])).problems
    assert (problem.code, problem.exit_code) == ("environment-of-no-gpu", 2)
    assert "GeForce RTX 3090 (0000:01:00.0)" in problem.evidence
    assert codes(on_processor(node(gpus=[]).stack(environments=asked))) == ["environment-without-gpus"] * 2


@pytest.mark.parametrize(
    ("asked", "code", "way"),
    [
        ("horovod", "horovod-unmaintained", "DistributedDataParallel"),
        (wish("pytorch", extras=["horovod[pytorch]>=0.28"]), "horovod-unmaintained", "accelerate"),
        (wish("pytorch", extras=["tensorflow"]), "frameworks-in-one-environment", "{name: tensorflow, framework: "),
        (wish("jax", extras=["Torch>=2"]), "frameworks-in-one-environment", "{name: pytorch, framework: pytorch}"),
        (wish("vllm", extras=["torch"]), "frameworks-in-one-environment", "leave torch out"),
        (wish("python", extras=["torch", "jax"]), "frameworks-in-one-environment", "an environment of its own"),
        (wish("pytorch", extras=["torch==2.1"]), "framework-in-extras", "leave torch out of its extras"),
    ],
)
def test_what_no_environment_can_be_is_refused_with_the_alternative(node, asked, code, way):
    (problem,) = plan(node().stack(environments=[asked])).problems
    assert problem.code == code
    assert way in problem.remedy


def test_a_framework_among_packages_of_ones_own_is_ones_own(node):
    assert not plan(node().stack(environments=[wish("python", name="mine", extras=["torch"])])).problems


def test_nothing_asked_for_is_nothing_planned(node):
    assert plan(node().stack(environments=[])).choices == ()


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
