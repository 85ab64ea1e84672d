"""How docker's containers get at the GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.resolve.gpu.containers import plan_containers
from gpustrap.resolve.parts import Part

ROLE = "nvidia_container_toolkit"


def docker(version, engine="docker.io"):
    packages = [{"name": "containerd.io", "version": "1"}, {"name": engine, "version": version}]
    return Part(variables={"docker_packages": packages})


@pytest.mark.parametrize(
    ("version", "engine", "mode", "feature"),
    [
        ("20.10.24+dfsg1-1+deb12u1", "docker.io", "runtime", False),
        ("26.0.2-0ubuntu1", "docker.io", "runtime", False),
        ("26.1.5+dfsg1-9+b4", "docker.io", "cdi", True),
        ("28.1.1-0ubuntu1", "docker.io", "cdi", True),
        ("28.2.2-0ubuntu1~24.04.1", "docker.io", "cdi", False),
        ("5:29.7.2-1~ubuntu.24.04~noble", "docker-ce", "cdi", False),
    ],
)
def test_mode_follows_the_docker_that_was_decided(node, version, engine, mode, feature):
    part = plan_containers(node().stack(), docker(version, engine))
    assert part.variables[f"{ROLE}_mode"] == mode
    assert part.variables[f"{ROLE}_docker_cdi_feature"] is feature
    assert part.choices[0].value == f"1.20.0-1 {mode}"
    said = {("runtime", False): ["docker-too-old-for-cdi"], ("cdi", True): ["docker-cdi-no-restart"]}
    assert [f.code for f in part.findings] == said.get((mode, feature), [])


def test_toolkit_1_18_cdi_default_wants_a_podman_that_reads_its_specification(node):
    part = plan_containers(node().stack(), docker("28.2.2-0ubuntu1"))
    assert part.variables[f"{ROLE}_podman_min"] == "5.1"


def test_a_docker_of_open_version_is_not_called_too_old(node):
    part = plan_containers(node(offline=True).stack(), docker(""))
    assert part.variables[f"{ROLE}_mode"] == "cdi"
    assert "if docker.io turns out to be 26.1 or newer" in part.choices[0].reason
    assert not part.findings


def test_all_packages_at_one_version_from_their_own_repository(node, catalog):
    part = plan_containers(node().stack(), docker("28.2.2-0ubuntu1"))
    versions = {p["name"]: p["version"] for p in part.variables[f"{ROLE}_packages"]}
    assert versions == dict.fromkeys(catalog.container_toolkit.packages, "1.20.0-1")
    assert len(versions) == 4
    assert "nvidia.github.io" in part.variables[f"{ROLE}_repository"]["uri"]
    assert part.variables[f"{ROLE}_key"]["fingerprints"] == ["C95B321B61E88C1809C4F759DDCAE044F796ECB0"]
    assert [r.name for r in part.repositories] == ["container-toolkit"]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_rests_on_what_docker_reads_too(node, catalog, architecture):
    def said(knows):
        return plan_containers(node(architecture=architecture).stack(knows), docker("28.2.2")).choices[0].confidence

    unread = tuple(row.model_copy(update={"confidence": "recalled"}) for row in catalog.cdi)
    assert said(catalog) == "verified"
    assert said(replace(catalog, cdi=unread)) == "recalled"


def test_user_switches_cdi_off(node):
    stack = node().stack(docker_daemon={"features": {"cdi": False}})
    part = plan_containers(stack, docker("28.2.2-0ubuntu1"))
    assert part.variables[f"{ROLE}_mode"] == "runtime"
    assert "gpustrap_docker_daemon" in part.choices[0].reason
    for features in (None, [], "cdi", {"cdi": True}):
        part = plan_containers(node().stack(docker_daemon={"features": features}), docker("28.2.2-0ubuntu1"))
        assert part.variables[f"{ROLE}_mode"] == "cdi"


def test_nothing_without_docker(node):
    for request, switch in (({"docker": False}, "gpustrap_docker"), ({"container_toolkit": False}, "toolkit")):
        part = plan_containers(node().stack(**request), Part())
        assert part.choices[0].value == "none"
        assert f"{switch} is false" in part.choices[0].reason
        assert part.variables is None


def test_refused_docker_is_not_refused_twice(node):
    refused = Part(variables={"docker_packages": []}, problems=(Problem("x", "n1", "m", ExitCode.REFUSED),))
    assert plan_containers(node().stack(), refused) == Part()


def test_node_knows_newer_ones_only_if_it_knows_all_four(node, catalog):
    names = catalog.container_toolkit.packages
    all_four = node(can_have=dict.fromkeys(names, ("1.21.0-1", "1.20.0-1")))
    part = plan_containers(all_four.stack(), docker("28.2.2"))
    assert part.choices[0].value == "1.21.0-1 cdi"
    three = node(can_have=dict.fromkeys(names[:-1], ("1.21.0-1",)))
    assert plan_containers(three.stack(), docker("28.2.2")).choices[0].value == "1.20.0-1 cdi"


def test_locked_version_stays_until_upgrade(node, catalog):
    names = catalog.container_toolkit.packages
    older, newer = (node(can_have=dict.fromkeys(names, (v,))) for v in ("1.19.1-1", "1.20.0-1"))
    first = plan_containers(older.stack(), docker("28.2.2"))
    kept = plan_containers(newer.again(ROLE, first).stack(), docker("28.2.2"))
    assert kept.choices[0].value == "1.19.1-1 cdi"
    assert "1.20.0-1 is available: gpustrap plan --upgrade" in kept.choices[0].reason
    upgraded = plan_containers(newer.again(ROLE, first, upgrade=("container-toolkit",)).stack(), docker("28.2.2"))
    assert upgraded.choices[0].value == "1.20.0-1 cdi"


def test_spec_that_no_docker_is_known_to_read(node, catalog):
    part = plan_containers(node().stack(replace(catalog, cdi=())), docker("29.7.2"))
    assert part.variables[f"{ROLE}_mode"] == "runtime"
    assert "no docker is known to read" in part.findings[0].message
