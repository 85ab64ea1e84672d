"""The looks at a node end, whatever the node says, and say the same twice."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema_stack import DriverPackages
from gpustrap.errors import Problem
from gpustrap.model.facts import Facts
from gpustrap.model.request import Request
from gpustrap.resolve.gpu.boards import node_gpus
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.parts import Inputs
from gpustrap.resolve.preflight.all import look
from gpustrap.resolve.preflight.view import Seen

MANY = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CATALOG = load_catalog()
ADDRESSES = ["", "0000:00:01.0", "0000:01:00.0", "0000:41:00.0", "x"]
NAMES = [
    "nvidia-driver-580",
    "libcuda1",
    "package nvidia-open",
    "package",
    "runfile",
    "unowned",
    "dkms",
    "\0",
    "7" * 400,
]
KERNELS = ["", "-", "6.1", "6.8.0-90-generic", "7.3.4+deb13-amd64", "9" * 400, "\n"]
PLACES = ["", "/", "/boot", "/boot/", "/usr", "usr", "/opt/conda", "//"]
ARCHIVES = ["", "http://a.example noble/main", "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64"]
SYSTEMS = [{"id": d.id, "version_id": d.version_id, "architecture": "x86_64"} for d in CATALOG.distros]
SIZES = st.integers(-(2**40), 2**63)
LANES = st.none() | st.integers(-1, 64)


def dicts(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def some(strategy: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=3)


GPU = st.fixed_dictionaries(
    {
        "address": st.sampled_from(ADDRESSES),
        "vendor": st.just("10de"),
        "device": st.sampled_from(["2204", "2684", "22ff", "1b06", "2bb3", "", "zzzz"]),
    },
    optional={
        "driver": st.sampled_from([None, "nvidia", "nouveau", "vfio-pci", "x"]),
        "link_width": LANES,
        "link_width_max": LANES,
        "bars": some(SIZES),
        "bars_unassigned": st.integers(-1, 6),
        "bridges": some(st.sampled_from(ADDRESSES)),
        "iommu_type": st.sampled_from([None, "DMA", "identity"]),
    },
)


@st.composite
def drivers(draw: st.DrawFn, rows: list[DriverPackages]) -> Driver | None:
    row = draw(st.none() | st.sampled_from(rows))
    branch = CATALOG.driver(draw(st.sampled_from(row.branches))) if row else None
    return Driver(branch, row, "", "", kept=draw(st.booleans())) if branch and row else None


FACTS = st.fixed_dictionaries(
    {
        "os": st.sampled_from(
            [{"id": d.id, "version_id": d.version_id, "architecture": "x86_64"} for d in CATALOG.distros]
        ),
        "kernel": dicts(
            installed=some(st.sampled_from(KERNELS)),
            headers=some(st.sampled_from(KERNELS)),
            modules_loadable=st.none() | st.booleans(),
            cmdline=st.sampled_from(["", "modprobe.blacklist=", "module_blacklist=nvidia,,x"]),
        ).flatmap(lambda k: st.sampled_from(KERNELS).map(lambda running: {**k, "running": running})),
        "pci": st.lists(GPU, min_size=1, max_size=3),
    },
    optional={
        "virtualization": st.sampled_from(["none", "kvm", "podman", "unknown", ""]),
        "memory": dicts(total=SIZES),
        "filesystems": some(
            st.fixed_dictionaries(
                {"mount": st.sampled_from(PLACES)},
                optional={
                    "size": SIZES,
                    "free": SIZES,
                    "inodes": SIZES,
                    "inodes_free": SIZES,
                    "options": some(st.just("ro")),
                },
            )
        ),
        "bridges": some(
            st.fixed_dictionaries(
                {"address": st.sampled_from(ADDRESSES)},
                optional={"link_width": LANES, "link_width_max": LANES, "acs_redirect": st.none() | st.booleans()},
            )
        ),
        "nvidia": dicts(
            module=st.sampled_from(["", "580.95.05", "x"]),
            nvml=st.none() | some(st.sampled_from(ADDRESSES)),
            nvml_error=st.sampled_from(["", "gave no answer", "x"]),
        ),
        "secure_boot": dicts(enabled=st.none() | st.booleans()),
        "package_manager": dicts(
            kind=st.sampled_from(["apt", "dnf", "unknown"]),
            holds=some(st.sampled_from(NAMES)),
            packages=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(NAMES), max_size=3),
            candidates=st.dictionaries(st.sampled_from(NAMES), st.just("1"), max_size=3),
            installed_origins=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(ARCHIVES), max_size=3),
            sources=some(
                st.fixed_dictionaries({"file": st.just("f"), "uri": st.sampled_from(ARCHIVES), "suite": st.just("/")})
            ),
        ),
        "installs": some(
            st.fixed_dictionaries(
                {"what": st.sampled_from(["nvidia-driver", "cuda"])},
                optional={
                    "version": st.sampled_from(["", "580.95.05-1", "580.95.05", *KERNELS]),
                    "origin": st.sampled_from(NAMES),
                    "path": st.sampled_from(["", "/usr/lib/libnvidia-ml.so.580.95.05"]),
                },
            )
        ),
        "unattended_upgrades": dicts(
            enabled=st.none() | st.booleans(), blacklist=some(st.sampled_from(["(", "nvidia"]))
        ),
    },
)


@MANY
@given(FACTS, st.data())
def test_looks_are_total_and_deterministic(said: dict[str, Any], data: st.DataObject) -> None:
    facts = Facts.model_validate(said)
    distro = CATALOG.distro(facts.os.id, facts.os.version_id)
    assert distro
    request = Request(driver_mok=data.draw(st.booleans()), pcie_width=data.draw(st.sampled_from([None, 1, 16])))
    inputs = Inputs("n1", facts, request, CATALOG, distro, None, False, frozenset())
    driver = data.draw(drivers([row for row in CATALOG.driver_packages if distro.key in row.distros]))
    disk = data.draw(st.dictionaries(st.sampled_from(PLACES), st.integers(0, 2**50), max_size=3))
    gpus = node_gpus(facts, CATALOG)
    part = look(inputs, gpus, driver, disk)
    assert part == look(inputs, gpus, driver, dict(reversed(disk.items())))
    seen: tuple[Seen, ...] = (*part.problems, *part.findings)
    assert all(one.message for one in seen)
    assert all(one.remedy if isinstance(one, Problem) else one.advice for one in seen)
    both = {p.code for p in part.problems} & {f.code for f in part.findings}
    assert not both, "what is refused is not warned of as well"
