"""What holds for every plan of a node with GPUs.

What a GPU allows is written down here again, by PCI id and compute capability, from NVIDIA's documents and not from the
catalog: a wrong row of the catalog must not agree with itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpustrap.ansible_plugins.module_utils.gpustrap_node.installs import PACKAGES
from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Distro
from gpustrap.model.facts import Facts, SecureBootFacts
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.plan import NodePlan
from gpustrap.model.request import Request
from gpustrap.resolve.gpu.boards import capability, node_gpus
from gpustrap.resolve.gpu.candidates import candidates
from gpustrap.resolve.parts import Inputs
from gpustrap.resolve.plan import plan_node
from gpustrap.site.lockfile import dump_lock

CATALOG = load_catalog()
EXAMPLES = [60, pytest.param(500, marks=pytest.mark.slow)]
BOARDS = sorted((i, g.subsystem, g.compute_capability) for g in CATALOG.gpus for i in g.ids)
GRACE_HOPPER = {"2342", "2348"}
FLOORS = {"8.9": 525, "9.0": 525, "10.0": 570, "12.0": 570, "10.3": 580, "12.1": 580, "10.7": 615}
OPEN_ONLY = {"10.0", "12.0", "10.3", "12.1", "10.7"}
RANGES = (("133f", 470), ("1df6", 580))  # last id, last branch: docs.nvidia.com, driver lifecycle
# Machine code of builds, the last one's PTX, too: pytorch RELEASE.md; docs.jax.dev and vLLM, installation.
CUDA_13 = ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
CODE: dict[str, dict[str, tuple[tuple[str, ...], bool]]] = {
    "pytorch": {
        "cuda129": (CUDA_13, True),
        "cuda130": (CUDA_13, True),
        "cu126": (("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0"), False),
        "cu128": (("7.0", *CUDA_13), False),
        "cu130": (CUDA_13, True),
        "cu132": (CUDA_13, True),
    },
    "vllm": {"cu130": (CUDA_13, True)},
    "jax": {"cuda12": (("5.2", "6.0", "7.0", *CUDA_13), False), "cuda13": (CUDA_13, True)},
    "tensorflow": {"cu12": (("6.0", "7.0", "7.5", "8.0", "8.9", "9.0"), True)},
}
KERNELS = {
    "debian": ["6.1.0-44-amd64", "6.12.117+deb13-amd64", "7.3.4-1-cloud-amd64", "6.8.12-4-pve"],
    "ubuntu": [
        "6.8.0-90-generic",
        "6.17.0-14-generic",
        "6.17.0-14-generic-64k",
        "7.0.0-22-generic",
        "6.11.0-061100-generic",
        "6.14.0-1015-nvidia",
        "5.15.0-1044-aws",
        "6.17.0-1010-azure",
        "6.9.1-custom",
    ],
    "rhel": ["5.14.0-611.el9.x86_64", "6.12.0-124.el10.x86_64"],
}
FOREIGN = {"6.8.12-4-pve", "6.11.0-061100-generic", "6.9.1-custom"}


def for_all(*strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """A property, tried on some examples in the fast lane and on many in the slow one."""

    def wrap(check: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", EXAMPLES)
        def test(examples: int) -> None:
            few = settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            few(given(*strategies)(check))()

        return test

    return wrap


@st.composite
def devices(draw: st.DrawFn) -> list[dict[str, Any]]:
    """PCI devices: boards of the catalog, most often alike; sometimes an id that no board has, or another vendor's."""
    found: list[dict[str, Any]] = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        device, subsystem, _ = draw(st.sampled_from(BOARDS))
        if draw(st.integers(0, 14)) == 0:
            device, subsystem = f"{draw(st.integers(0, 0xFFFF)):04x}", ""
        vendor = draw(st.sampled_from(["10de"] * 20 + ["1002"]))
        driver = draw(st.sampled_from([None, None, None, None, "nouveau", "vfio-pci"]))
        row = {"vendor": vendor, "device": device, "subsystem_device": subsystem, "driver": driver}
        found += [row | {"pci_class": "0302", "bars": [16 << 20, 256 << 30]}] * draw(st.sampled_from([1, 1, 1, 4, 8]))
    found += [{"vendor": "10de", "device": "22a3", "pci_class": "0680"}] * draw(st.sampled_from([0, 0, 4]))
    return [{"address": f"0000:{number:02x}:00.0"} | row for number, row in enumerate(found, 1)]


@st.composite
def nodes(draw: st.DrawFn) -> Facts:
    """A node with GPUs on any distribution, whose package manager knows some of the driver's packages."""
    distro = draw(st.sampled_from(CATALOG.distros))
    kernel = draw(st.sampled_from(KERNELS[distro.id]))
    archive = {"file": "/etc/apt/sources.list", "uri": "http://archive.example", "suite": distro.codename}
    archive["components"] = sorted({"main", *(c for row in CATALOG.driver_packages for c in row.components)})
    known = known_packages(distro, kernel, draw(st.sampled_from(["all", "all", "some", "none"])))
    return Facts.model_validate(
        {
            "os": {
                "id": distro.id,
                "version_id": distro.version_id,
                "codename": distro.codename,
                "architecture": draw(st.sampled_from(["x86_64", "x86_64", "aarch64"])),
                "python": distro.python,
            },
            "kernel": {"running": kernel, "installed": [kernel], "headers": draw(st.sampled_from([[], [kernel]]))},
            "pci": draw(devices()),
            "secure_boot": {"enabled": draw(st.sampled_from([None, False, False, True]))},
            "memory": {"total": 4 << 40, "available": 4 << 40},
            "filesystems": [{"mount": "/", "size": 2 << 40, "free": 2 << 40, "inodes": 9**9, "inodes_free": 9**9}],
            "package_manager": {
                "kind": "dnf" if distro.family == "redhat" else "apt",
                "candidates": known,
                "sources": draw(st.sampled_from([[], [archive | {"components": ["main"]}], [archive]])),
            },
        }
    )


def known_packages(distro: Distro, kernel: str, how_many: str) -> dict[str, str]:
    """Docker's and what the catalog names of drivers in the distribution's archive, in made-up versions."""
    found = dict.fromkeys((*distro.docker_packages, distro.time_sync), "28.3-1")
    flavour = kernel.partition("-")[2].lstrip("0123456789-")
    for row in CATALOG.driver_packages:
        branches = row.branches[:1] if how_many == "some" else row.branches
        for branch in branches if distro.key in row.distros else ():
            names = {"branch": branch, "version": f"{branch}.99.01", "kernel": kernel}
            for name in row.kernel_packages:
                for ending in ("", distro.kernel_hwe):
                    found[name.format(**names, kernel_flavour=flavour + ending)] = "6.8.0-90.91"
            if row.origin == "distribution" and how_many != "none":
                fabric = (*row.fabric_manager, row.imex, *row.subnet_manager, row.subnet_library)
                for name in (*row.packages, row.leading, *fabric):
                    found[name.format(**names, kernel_flavour=flavour)] = f"{branch}.99.01-0made1"
    return {name: version for name, version in found.items() if name}


ENVIRONMENTS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c"]), "framework": st.sampled_from(sorted(CODE))},
    optional={
        "gpus": st.sampled_from([["RTX 3090"], ["Tesla P40", "RTX 5090"], ["0000:01:00.0"]]),
        "python": st.sampled_from(["auto", "3.10", "3.12", "3.15"]),
        "engine": st.sampled_from(["uv", "uv", "uv", "conda"]),
        "extras": st.sampled_from([[], ["accelerate"]]),
    },
)
REQUESTS = st.builds(
    Request,
    policy=st.sampled_from(["stable", "stable", "latest"]),
    driver_branch=st.sampled_from(
        ["auto"] * 20 + ["470", "535", "570", "580", "595", "595", "610", "615", "620", "999"]
    ),
    driver_flavour=st.sampled_from(["auto"] * 6 + ["open", "proprietary"]),
    driver_origin=st.sampled_from(["auto"] * 4 + ["distribution", "nvidia"]),
    driver_version=st.sampled_from([None] * 20 + ["580.99.01", "580.178.04", "595.99.01", "615.71.09"]),
    driver_mok=st.booleans(),
    cuda_version=st.sampled_from(
        ["auto"] * 16 + ["none", "11.8", "12.4", "12.8", "12.9", "13.0", "13.2", "13.5", "13.9"]
    ),
    cudnn=st.booleans(),
    nccl=st.booleans(),
    docker=st.booleans(),
    conda=st.booleans(),
    container_toolkit=st.booleans(),
    environments=st.lists(ENVIRONMENTS, max_size=2, unique_by=lambda wish: wish["name"]),
    python_mirror=st.sampled_from([None, "https://mirror.example/python"]),
)


# What there is to say against a driver before its node is looked at.
OF_THE_DRIVER = {"driver-request-unfit", "driver-unavailable", "driver-unverified", "gpu-not-supported"}
OF_THE_DRIVER |= {"gpus-incompatible", "package-unavailable", "version-unavailable", "fabric-manager-mismatch"}


def planned(node: Facts, request: Request, **more: Any) -> NodePlan:
    return plan_node("n1", node, request, CATALOG, **more)


def locked(node: Facts, request: Request, **more: Any) -> NodeLock | None:
    """Its entry for the lock; None where there is no driver in it."""
    lock = planned(node, request, **more).lock
    return lock if lock and "nvidia_driver" in decided(lock) else None


def driver(node: Facts, request: Request) -> dict[str, Any]:
    """What role nvidia_driver is given; empty where there is no driver."""
    lock = locked(node, request)
    return decided(lock)["nvidia_driver"] if lock else {}


def text(lock: NodeLock) -> str:
    return dump_lock(Lock(tool="t", catalog="c", nodes={"n1": lock}))


def possible(node: Facts, request: Request) -> set[Any]:
    """Every driver the node may have, unranked."""
    return {c.key for c in candidates(inputs_of(node, request), node_gpus(node, CATALOG))}


def inputs_of(node: Facts, request: Request) -> Inputs:
    distro = CATALOG.distro(node.os.id, node.os.version_id)
    assert distro
    return Inputs("n1", node, request, CATALOG, distro, None, False, frozenset())


def driven(node: Facts) -> list[tuple[str, str]]:
    """Device id and compute capability of the GPUs that are not given away; an unlisted id has no capability."""
    by_id = {device: capability_ for device, _, capability_ in BOARDS}
    return [
        (p.device, by_id.get(p.device, ""))
        for p in node.pci
        if p.vendor == "10de" and p.pci_class != "0680" and p.driver != "vfio-pci"
    ]


def flavours_of(device: str, cc: str, machine: str) -> set[str]:
    """Kernel module flavours that drive a GPU."""
    arm_hopper = cc == "9.0" and machine == "aarch64"
    if cc in OPEN_ONLY or device in GRACE_HOPPER or arm_hopper or (not cc and device > "28ff"):
        return {"open"}
    if capability(cc) < (7, 5) if cc else device <= "1df6":
        return {"proprietary"}
    return {"open", "proprietary"}


def branches_of(device: str, cc: str) -> tuple[int, int]:
    """The first and the last branch that drives a GPU."""
    if cc:
        last = 470 if capability(cc) < (5, 0) else 580 if capability(cc) < (7, 5) else 999
        return FLOORS.get(cc, 0), last
    return 570 if device > "28ff" else 0, next((branch for end, branch in RANGES if device <= end), 999)


@for_all(nodes(), REQUESTS)
def test_a_branch_and_a_flavour_that_drive_every_gpu(node: Facts, request: Request) -> None:
    variables = driver(node, request)
    for gpu in driven(node) if variables else ():
        first, last = branches_of(*gpu)
        assert first <= int(variables["nvidia_driver_branch"]) <= last, gpu
        assert variables["nvidia_driver_flavour"] in flavours_of(*gpu, node.os.architecture), gpu
    if int(variables.get("nvidia_driver_branch", 0)) >= 615:
        assert variables["nvidia_driver_flavour"] == "open"


@for_all(nodes(), st.just(Request()))
def test_gpus_are_incompatible_exactly_where_they_share_no_branch_or_flavour(node: Facts, request: Request) -> None:
    gpus = driven(node)
    if not gpus or any(device > "2fff" and not cc for device, cc in gpus):
        return
    flavours = set.intersection(*(flavours_of(*gpu, node.os.architecture) for gpu in gpus))
    first, last = max(branches_of(*gpu)[0] for gpu in gpus), min(branches_of(*gpu)[1] for gpu in gpus)
    codes = {p.code for p in planned(node, request).problems}
    assert (not flavours or first > last) == bool(codes & {"gpus-incompatible", "gpu-not-supported"}), (gpus, codes)


@for_all(nodes(), REQUESTS)
def test_what_was_asked_for_is_what_is_planned(node: Facts, request: Request) -> None:
    variables = driver(node, request)
    for wish in ("branch", "flavour", "origin", "version") if variables else ():
        assert getattr(request, f"driver_{wish}") in {"auto", None, variables[f"nvidia_driver_{wish}"]}
    toolkit = decided(locked(node, request)).get("cuda_toolkit")
    assert not toolkit or request.cuda_version in {"auto", toolkit["cuda_toolkit_version"]}
    assert not toolkit or request.cuda_version != "none"


@for_all(nodes(), REQUESTS, st.sampled_from(["driver_branch 580", "driver_flavour open", "driver_origin nvidia"]))
def test_another_wish_never_adds_a_driver(node: Facts, request: Request, wish: str) -> None:
    name, value = wish.split()
    narrower = Request.model_validate(request.model_dump() | {name: value})
    if getattr(request, name) == "auto":
        assert possible(node, narrower) <= possible(node, request)


@for_all(nodes(), nodes(), REQUESTS)
def test_another_gpu_never_adds_a_driver(node: Facts, other: Facts, request: Request) -> None:
    moved = [p.model_copy(update={"address": f"0001{p.address[4:]}"}) for p in other.pci]
    assert possible(node.model_copy(update={"pci": (*node.pci, *moved)}), request) <= possible(node, request)


@for_all(nodes(), REQUESTS)
def test_modules_built_on_the_node_under_secure_boot_need_a_person(node: Facts, request: Request) -> None:
    secure = SecureBootFacts(enabled=True, source="efivar")
    variables = driver(node.model_copy(update={"secure_boot": secure}), request)
    assert not variables or variables["nvidia_driver_module"] == "prebuilt" or request.driver_mok


@for_all(nodes(), REQUESTS)
def test_a_kernel_from_elsewhere_gets_no_package_of_the_distributions_kernels(node: Facts, request: Request) -> None:
    plan = planned(node, request)
    variables = decided(plan.lock).get("nvidia_driver")
    if variables and node.kernel.running in FOREIGN:
        assert variables["nvidia_driver_module"] == "dkms"
        assert {p["name"] for p in variables["nvidia_driver_kernel_packages"]} <= {"linux-headers-{kernel}"}
        assert "kernel-foreign" in {f.code for f in plan.findings}


@for_all(nodes(), REQUESTS)
def test_what_nobody_read_is_never_chosen_by_itself_and_always_told(node: Facts, request: Request) -> None:
    lock = locked(node, request)
    if lock is None:
        return
    variables = decided(lock)["nvidia_driver"]
    branch = CATALOG.driver(variables["nvidia_driver_branch"])
    rows = [
        row
        for row in CATALOG.driver_packages
        if branch and branch.branch in row.branches
        if variables["nvidia_driver_origin"] == row.origin and variables["nvidia_driver_flavour"] == row.flavour
        if inputs_of(node, request).distro.key in row.distros
    ]
    assert branch
    assert rows
    if branch.confidence == "recalled":
        assert request.driver_branch != "auto" or request.driver_version
    if "recalled" in {branch.confidence, *(row.confidence for row in rows)}:
        assert (request.driver_branch, request.driver_version, request.driver_origin) != ("auto", None, "auto")
        assert next(c for c in lock.choices if c.item == "driver").confidence == "recalled"


@for_all(nodes(), REQUESTS)
def test_what_rests_on_a_recalled_repository_says_so(node: Facts, request: Request) -> None:
    lock = locked(node, request)
    if lock is None:
        return
    distro = inputs_of(node, request).distro
    theirs = {
        distro.nvidia: {"cuda", "cudnn", "nccl"},
        distro.archive: {"docker"} if request.docker_origin == "distribution" else set(),
        CATALOG.container_toolkit.repository: {"container-toolkit"},
    }
    origin = decided(lock)["nvidia_driver"]["nvidia_driver_origin"]
    theirs[distro.nvidia if origin == "nvidia" else distro.archive] |= {"driver", "driver-origin", "fabric-manager"}
    rows = [CATALOG.repository(r.name, node.os.architecture) for r in lock.repositories]
    recalled = [row.name for row in rows if row and row.confidence == "recalled"]
    resting = {item for name in recalled for item in theirs.get(name, ())}
    assert not [c for c in lock.choices if c.item in resting and c.value != "none" and c.confidence == "verified"]


@for_all(nodes(), REQUESTS)
def test_the_same_input_gives_the_same_bytes(node: Facts, request: Request) -> None:
    first = planned(node, request)
    again = Facts.model_validate_json(node.model_dump_json())
    turned = again.model_copy(update={"pci": again.pci[::-1]})
    for other in (again, turned):
        second = planned(other, Request.model_validate_json(request.model_dump_json()))
        assert second == first
        assert first.lock is None or second.lock is None or text(first.lock) == text(second.lock)


@for_all(nodes(), REQUESTS)
def test_every_choice_has_its_reason_and_every_refusal_its_way_out(node: Facts, request: Request) -> None:
    plan = planned(node, request)
    assert bool(plan.lock) != bool(plan.problems)
    choices = plan.lock.choices if plan.lock else ()
    assert len({c.item for c in choices}) == len(choices)
    assert all(c.value and c.reason and c.source for c in choices), choices
    for problem in plan.problems:
        assert problem.subject == "node n1"
        assert problem.message, problem
        assert problem.remedy, problem
        if problem.code.startswith(("gpu", "driver-un", "driver-request")):
            assert any(p.address in problem.message + problem.evidence for p in node.pci), problem
    assert not [f for f in plan.findings if not f.message or not f.evidence or not f.advice]
    messages = [*(p.message for p in plan.problems), *(f.message for f in plan.findings)]
    assert not [message for message in messages if message.endswith(".")]


@for_all(nodes(), REQUESTS)
def test_advice_leads_somewhere(node: Facts, request: Request) -> None:
    """Who sets what a refusal or a finding tells to set is not refused for the same again, and has a driver."""
    plan = planned(node, request)
    said = [(p.code, p.remedy) for p in plan.problems] + [(f.code, f.advice) for f in plan.findings]
    for code, advice in said:
        for way in re.split("; (?:or )?|one of: ", advice):
            changes = told(way)
            if changes:
                after = [p.code for p in planned(node, Request.model_validate(request.model_dump() | changes)).problems]
                before = [p.code for p in plan.problems]
                # Of two environments that are refused, the other may stay so.
                assert after.count(code) < max(before.count(code), 1), way
                assert not (set(after) - set(before)) & OF_THE_DRIVER, (code, way)


def told(way: str) -> dict[str, Any]:
    """The fields of the request that one way out sets, or takes back to their defaults."""
    if "gpustrap_driver_version to" in way:
        return {}  # that version is for a person to find
    default = Request()
    out = re.search("leave out (gpustrap_[a-z_]+(?: and gpustrap_[a-z_]+(?!:))*)", way)
    names = [name.removeprefix("gpustrap_") for name in out[1].split(" and ")] if out else []
    sets = re.findall(r'gpustrap_([a-z_]+): "?([a-z0-9.]+)"?', way)
    return {name: getattr(default, name) for name in names} | dict(sets)


@for_all(nodes(), REQUESTS)
def test_no_cuda_13_below_turing(node: Facts, request: Request) -> None:
    toolkit = decided(locked(node, request)).get("cuda_toolkit")
    if toolkit and any(capability(cc) < (7, 5) if cc else device <= "1df6" for device, cc in driven(node)):
        assert int(toolkit["cuda_toolkit_version"].partition(".")[0]) < 13


def environments(lock: NodeLock | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decided(lock).get("ml_environments", {}).get("ml_environments_environments", [])
    return found


@for_all(nodes(), REQUESTS)
def test_no_build_without_code_for_every_gpu_of_its_environment(node: Facts, request: Request) -> None:
    at = dict(zip([p.address for p in node.pci], [(p.device, p.driver) for p in node.pci], strict=True))
    by_id = {device: capability_ for device, _, capability_ in BOARDS}
    for environment in environments(locked(node, request)):
        variant = environment["variant"].partition("-")[0]
        code, ptx = CODE[environment["framework"]][variant]
        addresses = environment["gpus"] or [a for a, (_, driver_) in at.items() if driver_ != "vfio-pci"]
        for cc in (by_id.get(at[address][0], "") for address in addresses):
            runs = [c for c in code if cc and capability(c)[0] == capability(cc)[0] and capability(c) <= capability(cc)]
            assert runs or not cc or (ptx and capability(cc) >= capability(code[-1])), (environment, cc)


@for_all(nodes(), REQUESTS)
def test_a_python_that_there_is_a_build_for_and_that_the_node_can_have(node: Facts, request: Request) -> None:
    own = inputs_of(node, request).distro.python
    for environment in environments(planned(node, request).lock):
        rows = CATALOG.conda_builds if environment["engine"] == "conda" else CATALOG.wheels
        asked, variant = environment["requirements"], environment["variant"]
        row = next(row for row in rows if row.requirement in asked and row.variant == variant)
        assert environment["python"] in row.pythons
        interpreter = environment["interpreter"]
        assert interpreter != "distribution" or environment["python"] == own
        assert interpreter != "conda" or (request.conda and environment["channels"])
        assert interpreter != "uv" or request.python_mirror
        wish = next(wish for wish in request.environments if wish.name == environment["name"])
        assert wish.python in {"auto", environment["python"]}


@for_all(nodes(), REQUESTS)
def test_without_gpus_nothing_for_gpus_is_planned(node: Facts, request: Request) -> None:
    plain = node.model_copy(update={"pci": ()})
    for environment in environments(planned(plain, request).lock):
        assert (environment["variant"], environment["cuda"], environment["compute"]) == ("cpu", "", [])


@for_all(nodes(), REQUESTS)
def test_planning_again_changes_nothing(node: Facts, request: Request) -> None:
    lock = locked(node, request)
    assert lock is None or decided(locked(node, request, keep=lock)) == decided(lock)


@for_all(nodes(), REQUESTS)
def test_newer_packages_move_nothing_that_is_locked(node: Facts, request: Request) -> None:
    lock = locked(node, request)
    later = planned(newer(node), request, keep=lock)
    gone = {"version-unavailable"} & {p.code for p in later.problems}
    assert lock is None or gone or decided(later.lock) == decided(lock)


@for_all(nodes(), REQUESTS)
def test_planning_after_apply_changes_nothing(node: Facts, request: Request) -> None:
    lock = locked(node, request)
    assert lock is None or decided(locked(applied(node, lock), request, keep=lock)) == decided(lock)


@for_all(nodes(), REQUESTS)
def test_a_driver_that_fits_stays_without_a_lock_too(node: Facts, request: Request) -> None:
    lock = locked(node, request)
    if lock:
        keys = [f"nvidia_driver_{key}" for key in ("branch", "flavour", "origin", "version", "package_version")]
        before, after = decided(lock)["nvidia_driver"], driver(newer(applied(node, lock)), request)
        assert {key: after.get(key) for key in keys} == {key: before[key] for key in keys}


def newer(node: Facts) -> Facts:
    """A day later: the archive has moved on."""
    candidates = {n: v.replace(".99.01", ".99.02") for n, v in node.package_manager.candidates.items()}
    return node.model_copy(
        update={"package_manager": node.package_manager.model_copy(update={"candidates": candidates})}
    )


def decided(lock: NodeLock | None) -> dict[str, Any]:
    return lock.roles | lock.pending if lock else {}


def applied(node: Facts, lock: NodeLock) -> Facts:
    """The node as it is once everything is installed and the driver runs."""
    lists = [v for variables in decided(lock).values() for name, v in variables.items() if name.endswith("_packages")]
    rows = [row for rows in lists for row in rows if isinstance(row, dict)]
    packages = {row["name"]: row["version"] for row in rows if row["version"]}
    variables = decided(lock)["nvidia_driver"]
    version, flavour = variables["nvidia_driver_version"], variables["nvidia_driver_flavour"]
    theirs = [p.address for p in node.pci if p.vendor == "10de" and p.pci_class != "0680" and p.driver != "vfio-pci"]
    changed = node.model_dump(mode="json")
    changed["package_manager"]["packages"] = packages
    changed["package_manager"]["candidates"] = packages | changed["package_manager"]["candidates"]
    for pci in changed["pci"]:
        pci["driver"] = "nvidia" if pci["address"] in theirs else pci["driver"]
    changed["nvidia"] = {"module": version, "flavour": flavour, "bound": theirs, "nvml": theirs}
    changed["installs"] = [{"what": "nvidia-driver", "version": version, "origin": "loaded module"}]
    drivers = re.compile("|".join(names for what, names in PACKAGES if what == "nvidia-driver"))
    seen = [name for name in packages if drivers.fullmatch(name)]
    changed["installs"] += [{"what": "nvidia-driver", "version": packages[n], "origin": f"package {n}"} for n in seen]
    return Facts.model_validate(changed)
