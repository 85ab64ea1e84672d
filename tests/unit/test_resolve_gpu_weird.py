"""Whatever a node says of itself, there is a plan or a refusal: never an exception, never both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpustrap.catalog.loader import load_catalog
from gpustrap.model.facts import Facts
from gpustrap.model.request import Request
from gpustrap.resolve.plan import plan_node

CATALOG = load_catalog()
IDS = sorted(i for g in CATALOG.gpus for i in g.ids)
NAMES = sorted({name for row in CATALOG.driver_packages for name in (*row.packages, *row.kernel_packages)})
FEW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

WEIRD = st.one_of(
    st.sampled_from(["", "-", ".", "0", "\x00", "é", "a b", "9" * 40, "580", "v1.2.3", "580.178.04-1"]),
    st.text(max_size=8),
)
SOME = st.lists(WEIRD, max_size=2)
NUMBER = st.integers(-1, 2**40)
PCI = st.fixed_dictionaries(
    {
        "address": WEIRD,
        "vendor": st.sampled_from(["10de", "10de", "10de", "1002", "8086", ""]),
        "device": st.sampled_from(IDS) | WEIRD,
        "pci_class": st.sampled_from(["0300", "0302", "0302", "0680", "1200", "", "é"]),
    },
    optional={
        "subsystem_device": WEIRD,
        "driver": st.sampled_from(["nouveau", "nvidia", "vfio-pci", "", "é"]),
        "link_width": NUMBER,
        "link_width_max": NUMBER,
        "link_speed": st.floats(-1, 1e9),
        "bars": st.lists(NUMBER, max_size=3),
        "bars_unassigned": NUMBER,
        "bridges": SOME,
        "iommu_type": WEIRD,
    },
)
BRIDGE = st.fixed_dictionaries(
    {"address": WEIRD}, optional={"link_width": NUMBER, "link_width_max": NUMBER, "acs_redirect": st.booleans()}
)
MOUNT = st.fixed_dictionaries({"mount": st.just("/") | WEIRD, "size": NUMBER, "free": NUMBER, "inodes_free": NUMBER})
ORIGINS = ["runfile", "unowned", "dkms", "loaded module", "tree", "package nvidia-driver", "package ", "package é", ""]
INSTALL = st.fixed_dictionaries(
    {
        "what": st.sampled_from(["nvidia-driver", "nvidia-driver", "cuda", "docker", "container-toolkit"]),
        "version": WEIRD,
        "origin": st.sampled_from(ORIGINS),
        "path": WEIRD,
    }
)
NVIDIA = st.fixed_dictionaries(
    {"module": WEIRD, "bound": SOME, "nvml": st.none() | SOME},
    optional={"flavour": st.sampled_from(["open", "proprietary"]), "nvml_error": WEIRD},
)
VERSIONS = st.dictionaries(st.sampled_from([*NAMES, "docker.io", "cuda-toolkit-13-0"]), WEIRD, max_size=6)
SOURCE = st.fixed_dictionaries({"file": WEIRD, "uri": WEIRD | st.just("https://[bad"), "suite": WEIRD})
MANAGER = st.fixed_dictionaries(
    {"kind": st.sampled_from(["apt", "apt", "apt", "dnf", "unknown"])},
    optional={
        "candidates": VERSIONS,
        "packages": VERSIONS,
        "candidate_origins": VERSIONS,
        "installed_origins": VERSIONS,
        "versions": st.dictionaries(st.sampled_from(NAMES), SOME, max_size=3),
        "holds": SOME,
        "sources": st.lists(SOURCE, max_size=2),
    },
)
WISHES = st.fixed_dictionaries(
    {},
    optional={
        "driver_branch": st.sampled_from(["580", "595", "620", "000"]),
        "driver_version": st.sampled_from(["580.178.04", "620.1", "999.99"]),
        "driver_mok": st.booleans(),
        "cuda_version": st.sampled_from(["none", "12.9", "0.0", "13.0"]),
        "docker_daemon": st.sampled_from([{"features": 1}, {"features": {"cdi": False}}]),
        "environments": st.sampled_from([[], ["jax"], ["vllm", "torch"], ["tensorflow"]]),
        "nvidia_repository": st.sampled_from(["https://mirror.example/cuda", "é", ""]),
        "python_index": st.sampled_from(["https://mirror.example/simple", "http://[x", "é", ""]),
        "pcie_width": st.sampled_from([1, 16]),
    },
)


@st.composite
def nodes(draw: st.DrawFn) -> Facts:
    """A node of a distribution that there is, with GPUs, of which nothing else makes sense."""
    distro = draw(st.sampled_from(CATALOG.distros))
    system = {"id": distro.id, "version_id": distro.version_id, "codename": distro.codename}
    system |= {key: draw(WEIRD) for key in draw(st.sets(st.sampled_from(["version_id", "codename", "python"])))}
    kernel = st.fixed_dictionaries({"running": WEIRD, "installed": SOME, "headers": SOME, "cmdline": WEIRD})
    facts: dict[str, Any] = {
        "os": system | {"architecture": draw(st.sampled_from(["x86_64", "aarch64", "riscv64", ""]))},
        "kernel": draw(kernel),
        "pci": draw(st.lists(PCI, max_size=4)),
        "bridges": draw(st.lists(BRIDGE, max_size=2)),
        "filesystems": draw(st.lists(MOUNT, max_size=2)),
        "memory": {"total": draw(NUMBER)},
        "installs": draw(st.lists(INSTALL, max_size=3)),
        "nvidia": draw(NVIDIA),
        "package_manager": draw(MANAGER),
        "secure_boot": {"enabled": draw(st.sampled_from([None, True, False]))},
        "virtualization": draw(st.sampled_from(["none", "kvm", "podman", "é"])),
    }
    return Facts.model_validate(facts)


@pytest.mark.parametrize("examples", [200, pytest.param(3000, marks=pytest.mark.slow)])
def test_every_node_has_a_plan_or_a_refusal(examples: int) -> None:
    @settings(FEW, max_examples=examples)
    @given(nodes(), WISHES, st.booleans())
    def check(node: Facts, wishes: dict[str, Any], offline: bool) -> None:
        plan = plan_node("n1", node, Request.model_validate(wishes), CATALOG, offline=offline)
        assert bool(plan.lock) != bool(plan.problems)
        assert all(p.message and p.remedy for p in plan.problems)

    check()
