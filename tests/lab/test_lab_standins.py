"""The stand-ins of NVIDIA's repositories on real nodes: what is wrong with them and their traps, by plain apt and dnf.

The cases are data, see tests/cases/standins/README.md. The userland is Debian's; a repository that is not the node's
own is read below a root of its own, and the test's name says by whose apt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.catalog.loader import load_catalog
from gpustrap.converge.failures import hint_for, hints
from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.lab.standins import nvidia_rpm
from gpustrap.lab.standins.nvidia_data import all_repositories

pytestmark = pytest.mark.slow

CASES = Path(__file__).parent.parent / "cases" / "standins"
KEYS = {
    "title",
    "node",
    "repository",
    "fault",
    "key",
    "before",
    "then",
    "run",
    "rc",
    "says",
    "never",
    "hint",
    "fact",
    "source",
}


def cases(system: str) -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*.yml")):
        for case in yaml.safe_load(path.read_text()):
            assert not case.keys() - KEYS, case
            repository = case.get("repository", case["node"])
            whose = "" if repository == case["node"] else f" ({repository} by {case['node']}'s apt)"
            if case["node"] == system:
                found.append(pytest.param({"repository": repository, **case}, id=f"{case['title']}{whose}"))
    return found


@pytest.fixture(scope="module", autouse=True)
def _served(lab: Lab) -> None:
    lab.standins()


# What NVIDIA's Debian packages need of the distribution, without its compilers.
DKMS = """mkdir -p dkms/DEBIAN
printf '%s: %s\\n' Package dkms Version 3.0.11-1 Architecture all Maintainer lab Description x >dkms/DEBIAN/control
dpkg-deb -b dkms dkms.deb && dpkg -i dkms.deb"""


@pytest.fixture(scope="module")
def debian12(lab: Lab) -> Iterator[LabNode]:
    node = lab.up([NodeSpec("standins-12", "debian12")])[0]
    sh(node, DKMS)
    yield node
    lab.remove(node.name)


@pytest.fixture(scope="module")
def debian13(lab: Lab) -> Iterator[LabNode]:
    node = lab.up([NodeSpec("standins-13", "debian13")])[0]
    sh(node, DKMS)
    yield node
    lab.remove(node.name)


@pytest.fixture
def heal(lab: Lab) -> Iterator[None]:
    yield
    if any(lab.standin_faults().values()):
        lab.spoil_standins([], [])


def sh(node: LabNode, command: str, *, rc: int | None = 0) -> str:
    done = node.exec(f"export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive; cd /tmp; {command}")
    said = done.stdout + done.stderr
    assert rc is None or done.returncode == rc, said
    return said


# The node's own sources are taken away: nothing is asked for that is not in NVIDIA's repository.
RESET = """rm -rf /tmp/k /tmp/*.deb /srv/scratch
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/preferences.d/*
rm -rf /var/lib/apt/lists/*
dpkg --purge $(dpkg-query -W -f '${Package} ' 'nvidia-*' 2>/dev/null) 2>/dev/null
mkdir -p /etc/apt/keyrings
"""
FETCH = """python3 - <<'PYTHON'
import urllib.request
key = urllib.request.urlopen("http://mirror/nvidia/{key_place}").read()
open("/etc/apt/keyrings/nvidia.asc", "wb").write(key)
PYTHON
"""
SOURCE = """cat >{directory}/nvidia.sources <<'SOURCE'
Types: deb
URIs: http://mirror/nvidia/{place}
Suites: /
Architectures: amd64
Signed-By: /etc/apt/keyrings/nvidia.asc
SOURCE
"""
SCRATCH = """cd /tmp; mkdir -p /srv/scratch && cd /srv/scratch
mkdir -p etc/apt/sources.list.d etc/apt/preferences.d var/lib/apt/lists/partial var/cache/apt/archives/partial
touch status
printf '%s\\n' 'Dir::State "/srv/scratch/var/lib/apt";' 'Dir::State::status "/srv/scratch/status";' \\
  'Dir::Cache "/srv/scratch/var/cache/apt";' 'Dir::Etc "/srv/scratch/etc/apt";' 'APT::Sandbox::User "root";' >apt.conf
cd /tmp
"""


def prepare(node: LabNode, case: dict[str, Any]) -> str:
    """Give apt of a node the repository; the words before every call of it."""
    own = case["repository"] == case["node"]
    one = all_repositories()[case["repository"]]
    directory = "/etc/apt/sources.list.d" if own else "/srv/scratch/etc/apt/sources.list.d"
    parts = (RESET, "" if own else SCRATCH, FETCH.format(key_place=one.key_place))
    sh(node, "".join((*parts, SOURCE.format(place=one.place, directory=directory))))
    return "" if own else "export APT_CONFIG=/srv/scratch/apt.conf; "


def run_case(lab: Lab, node: LabNode, case: dict[str, Any]) -> None:
    how = prepare(node, case)
    if "fault" in case:
        lab.spoil_standins([case["repository"]], case["fault"])
    if case.get("key") == "published":
        sh(node, FETCH.format(key_place=all_repositories()[case["repository"]].key_place))
    if "before" in case:
        sh(node, how + case["before"])
    if "then" in case:
        lab.spoil_standins([case["repository"]], case["then"])
    said = sh(node, how + case["run"], rc=case.get("rc", 0))
    for pattern in case.get("says", []):
        assert re.search(pattern, said, re.MULTILINE), f"not said: {pattern}\n{said}"
    for pattern in case.get("never", []):
        assert not re.search(pattern, said, re.MULTILINE), f"said: {pattern}\n{said}"
    if "hint" in case:
        texts = {row.id: row.hint for row in hints()}
        assert hint_for(said) == texts[case["hint"]], said


@pytest.mark.usefixtures("heal")
@pytest.mark.parametrize("case", cases("debian12"))
def test_debian12(lab: Lab, debian12: LabNode, case: dict[str, Any]) -> None:
    run_case(lab, debian12, case)


@pytest.mark.usefixtures("heal")
@pytest.mark.parametrize("case", cases("debian13"))
def test_debian13(lab: Lab, debian13: LabNode, case: dict[str, Any]) -> None:
    run_case(lab, debian13, case)


DNF = (
    "dnf --assumeno --installroot=/srv/{name} --releasever={release} --setopt=reposdir=/none --nogpgcheck "
    "--setopt=module_platform_id=platform:el{release} --setopt=cachedir=/var/cache/{name} --forcearch=x86_64 "
    "--repofrompath=cuda,http://mirror/nvidia/compute/cuda/repos/{name}/x86_64 "
    "--repofrompath=distribution,http://mirror/nvidia/distribution "
)
UNRESOLVED = r"No match for argument|Unable to find a match|Problem:|filtered out|conflicting requests"


@pytest.fixture(scope="module")
def with_dnf(lab: Lab) -> Iterator[LabNode]:
    """Debian's own dnf: it resolves from NVIDIA's metadata as RHEL's does; there is nothing to install."""
    node = lab.up([NodeSpec("standins-dnf", "debian13")])[0]
    sh(node, "apt-get -qq update && apt-get -qq install -y --no-install-recommends dnf >/dev/null 2>&1")
    yield node
    lab.remove("standins-dnf")


def dnf_rows() -> list[Any]:
    """Rows of the catalog for RHEL with a branch of which a version was read there."""
    found = []
    for row in load_catalog().driver_packages:
        name = row.repository
        if row.origin != "nvidia" or not name.startswith("rhel"):
            continue
        one = nvidia_rpm.repositories()[name]
        for version in one.drivers:
            branch = version.partition(".")[0]
            stream = row.stream.format(branch=branch)
            held = {rpm.name for rpm in nvidia_rpm.packages(name) if rpm.version == version}
            there = not stream or stream.partition(":")[2] in one.streams
            if branch in row.branches and there and held >= set(row.packages):
                case = (name, stream, tuple(f"{package}-{version}" for package in row.packages), row.kernel_packages)
                found.append(pytest.param(*case, id=f"{name} {row.flavour} {version}"))
    return found


@pytest.mark.parametrize(("name", "stream", "packages", "kernel"), dnf_rows())
def test_dnf_resolves_what_the_catalog_names(
    with_dnf: LabNode, name: str, stream: str, packages: tuple[str, ...], kernel: tuple[str, ...]
) -> None:
    dnf = DNF.format(name=name, release=name.removeprefix("rhel"))
    reset = f"rm -rf /srv/{name}; "
    enable = f"{dnf.replace('--assumeno', '-y')} module enable {stream} >/dev/null && " if stream else ""
    said = sh(with_dnf, f"{reset}{enable}{dnf} install {' '.join((*packages, *kernel))}", rc=1)  # it was told to say no
    assert "Operation aborted" in said
    assert not re.search(UNRESOLVED, said), said
    for package in packages:
        title, _, version = package.rpartition("-")
        assert re.search(rf"^ {title} +\S+ +3:{re.escape(version)}-1\.el", said, re.MULTILINE), said


def test_dnf_without_the_stream_sees_the_newest_alone(with_dnf: LabNode) -> None:
    """Modular filtering: what is in a stream that is not enabled is not there for dnf."""
    dnf = DNF.format(name="rhel9", release="9")
    said = sh(with_dnf, f"rm -rf /srv/rhel9; {dnf} install kmod-nvidia-latest-dkms", rc=1)
    assert re.search(UNRESOLVED, said), said
    said = sh(with_dnf, f"rm -rf /srv/rhel9; {dnf} install nvidia-open", rc=1)
    assert re.search(r"^ kmod-nvidia-open-dkms +noarch +3:615\.", said, re.MULTILINE), said
