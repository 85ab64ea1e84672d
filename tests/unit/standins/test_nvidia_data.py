"""The transcribed rows are whole: sources, names that resolve, nothing made twice."""

from __future__ import annotations

import re

import pytest
import yaml

from gpustrap.lab.standins import nvidia_data, nvidia_rpm
from gpustrap.lab.standins.parts import VENDOR

ALL = list(nvidia_data.all_repositories())
# Of the distribution's archive.
ARCHIVE = {"dkms", "libibumad3", "nvidia-kernel-common-570-server", "nvidia-kernel-common-575-server"}


def parts(package, *fields):
    """The alternatives of each dependency, as names."""
    for field in fields:
        for dependency in filter(None, package.fields[field].split(", ")):
            yield [re.match(r"[^\s(]+", one.strip())[0] for one in dependency.split("|")]


@pytest.mark.parametrize("name", ALL)
def test_every_dependency_is_there(name):
    packages = nvidia_data.packages(name)
    known = {p.name for p in packages} | {n[0] for p in packages for n in parts(p, "Provides")} | ARCHIVE
    dangling = {
        (p.name, " | ".join(names))
        for p in packages
        for names in parts(p, "Depends", "Recommends")
        if not known.intersection(names)
    }
    assert dangling == set()


@pytest.mark.parametrize("name", ALL)
def test_no_package_is_nameless_or_made_of_a_template(name):
    for package in nvidia_data.packages(name):
        assert re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", package.name)
        assert re.fullmatch(r"(\d+:)?[0-9A-Za-z.+~-]+", package.version)
        assert not re.search(r"[{}]", "".join([*package.fields.values(), *package.files]))
        assert package.fields["Description"].endswith("simulated: stand-in of the gpustrap lab")


def test_every_row_says_where_and_when_it_was_read():
    data = nvidia_data.base()
    toolkits = yaml.safe_load((VENDOR / "nvidia_cuda.yml").read_text())["toolkits"]
    rows = [*data["repositories"], *data["toolkit_repositories"], *data["keys"], *toolkits]
    said = [(row["source"], row["checked"], row["confidence"]) for row in rows]
    rpm = [*nvidia_rpm.rows(), *nvidia_rpm.repositories().values()]
    said += [(row.source, row.checked, row.confidence) for row in (*nvidia_data.rows(), *rpm)]
    for source, checked, confidence in said:
        assert len(source) > 20
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", checked)
        assert confidence in {"verified", "recalled"}


def test_every_repository_has_a_key_that_is_described():
    assert {one.key for one in nvidia_data.all_repositories().values()} == {
        k["name"] for k in nvidia_data.base()["keys"]
    }


def test_packages_of_arm_servers_are_for_them():
    found = {p.name: p.architecture for p in nvidia_data.packages("ubuntu2404-sbsa")}
    assert found["nvidia-dkms-open"] == found["libcudnn9-cuda-13"] == "arm64"
    assert found["nvidia-driver-pinning-580"] == "all"
    assert "libnvsdm" not in found
    assert "cuda-toolkit-13-0" in found
    assert "cuda-toolkit-13-2" not in found


def test_it_is_independent_of_the_catalog():
    """The stand-in must be able to contradict it."""
    sources = [*VENDOR.glob("nvidia*.yml"), *(VENDOR.parent / "standins").glob("*.py")]
    assert len(sources) > 10
    assert not [
        path.name for path in sources if "gpustrap.catalog" in path.read_text() or "catalog/" in path.read_text()
    ]


def test_every_file_of_data_is_read():
    topics = {path.stem.removeprefix("nvidia_") for path in VENDOR.glob("nvidia_*.yml")}
    assert topics == {*nvidia_data.TOPICS, "rpm"}
