"""The lab's parts that need no container."""

from __future__ import annotations

import io
import ipaddress
import resource
import stat
import tarfile
from pathlib import Path

import pytest
import yaml

from gpustrap.commands.lab import parse_spec
from gpustrap.errors import GpustrapError
from gpustrap.lab import container, engine, images, inventory, network, preflight, state
from gpustrap.lab.manager import LabNode, NodeSpec, check_name
from gpustrap.model.site import Site


@pytest.fixture
def node(tmp_path: Path) -> LabNode:
    return LabNode("lab", "n1", "debian13", "10.1.2.10", "ubuntu", "s3cret", "SHA256:x", engine.Engine(tmp_path))


# --- network


def test_the_subnet_overlaps_nothing_that_is_taken() -> None:
    taken = [ipaddress.IPv4Network("10.128.0.0/11"), next(network.candidates("a"))]
    free = list(network.free_subnets("a", taken))
    assert free
    assert not any(subnet.overlaps(other) for subnet in free for other in taken)
    assert all(subnet.subnet_of(network.POOL) and subnet.prefixlen == 24 for subnet in free)


def test_a_machine_that_routes_the_whole_pool_gets_no_subnet() -> None:
    assert not list(network.free_subnets("a", [ipaddress.IPv4Network("10.0.0.0/8")]))


def test_the_same_lab_mostly_gets_the_same_subnet() -> None:
    assert next(network.candidates("a")) == next(network.candidates("a")) != next(network.candidates("b"))


# --- what a node may do


@pytest.mark.parametrize(
    "capability", ["ALL", "SYS_MODULE", "SYS_TIME", "SYS_RAWIO", "SYS_BOOT", "SYS_RESOURCE", "MAC_ADMIN"]
)
def test_a_node_never_gets(capability: str) -> None:
    assert capability not in container.CAPABILITIES


def test_a_node_is_never_privileged_and_never_on_the_hosts_network() -> None:
    arguments = " ".join(container.node_arguments("lab", "n1", "debian13", "10.1.2.10", "image"))
    assert "--cap-drop=all" in arguments
    for forbidden in ("--privileged", "unmask=ALL", "--network=host", "--pid=host", "--device="):
        assert forbidden not in arguments


# --- engine


def test_limits_never_exceed_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_NOFILE: (1000, resource.RLIM_INFINITY), resource.RLIMIT_NPROC: (90000, 90000)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    assert 'default_ulimits = ["nofile=1000:1048576", "nproc=32768:32768"]' in engine.containers_conf()


def test_runc_where_crun_would_refuse_the_cgroup_layout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine, "CGROUP", tmp_path)
    monkeypatch.setattr(engine.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert engine.runtime() == "runc"
    (tmp_path / "cgroup.controllers").touch()
    assert engine.runtime() == "crun"


# --- preflight


def test_everything_missing_is_said_at_once_with_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        preflight,
        "requirements",
        lambda: (
            preflight.Requirement("podman", "runs the nodes", lambda: False),
            preflight.Requirement("iproute2", "finds a subnet", lambda: True),
            preflight.Requirement("mmdebstrap", "builds images", lambda: False),
        ),
    )
    root, packages = preflight.missing()
    assert (root.code, packages.code) == ("lab-needs-root", "lab-packages-missing")
    assert packages.remedy == "apt-get install --no-install-recommends podman mmdebstrap"
    with pytest.raises(GpustrapError) as caught:
        preflight.require()
    assert caught.value.problems == (root, packages)


# --- images


def test_overlay_is_reproducible_and_readable_by_all(tmp_path: Path) -> None:
    certificate = tmp_path / "own-ca.crt"
    certificate.write_text("certificate")
    certificate.chmod(0o600)
    made = images.overlay((certificate,), ("http_proxy=http://p.example",), ('Acquire::Check-Date "false";',))
    assert made == images.overlay((certificate,), ("http_proxy=http://p.example",), ('Acquire::Check-Date "false";',))
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        members = {member.name: member for member in archive}
    assert {member.mode for member in members.values()} == {0o644}
    assert {"usr/local/share/ca-certificates/own-ca.crt", "etc/environment", "etc/apt/apt.conf.d/90lab-host"} <= set(
        members
    )


def test_a_changed_recipe_is_another_image() -> None:
    base = {"os": "debian13", "packages": ("sudo",), "sources": "", "options": (), "overlay": b""}
    one = images.Recipe(**base)
    assert one.reference == images.Recipe(**base).reference
    for change in ({"packages": ("sudo", "python3")}, {"sources": "x"}, {"options": ("x",)}, {"overlay": b"x"}):
        assert images.Recipe(**{**base, **change}).reference != one.reference


def test_unknown_system_is_refused_with_those_there_are() -> None:
    with pytest.raises(GpustrapError) as caught:
        images.recipe("windows", bare=False)
    (problem,) = caught.value.problems
    assert problem.code == "image-unknown"
    assert "ubuntu2404" in problem.remedy


# --- names


@pytest.mark.parametrize("name", ["", "-a", "a_b", "A", "a/b", "mirror", "a" * 33])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(GpustrapError, match="lower-case"):
        check_name("node", name)


def test_specs() -> None:
    assert parse_spec("n1:debian12") == NodeSpec("n1", "debian12")
    assert parse_spec("n1", bare=True) == NodeSpec("n1", "debian13", bare=True)
    for text in (":debian12", "a:b:c"):
        with pytest.raises(GpustrapError, match="NODE:OS"):
            parse_spec(text)


# --- state


def test_the_password_is_the_users_alone_and_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(state.DIRECTORY_VARIABLE, str(tmp_path / "labs"))
    password = state.password("a")
    path = state.password_file("a")
    assert password == path.read_text().rstrip("\n") == state.password("a") != state.password("b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(password) >= 16


def test_a_node_does_not_show_its_password(node: LabNode) -> None:
    assert "s3cret" not in repr(node)


# --- inventory


def test_inventory_beside_the_users_files(node: LabNode, tmp_path: Path) -> None:
    site = Site(tmp_path)
    mine = site.inventory / "hosts.yml"
    mine.parent.mkdir()
    mine.write_text("mine")
    inventory.write(site, [node], {"gpustrap_docker_repository": "http://10.1.2.2/docker"})
    assert yaml.safe_load(inventory.nodes_file(site).read_text()) == {
        "lab": {"hosts": {"n1": {"ansible_host": "10.1.2.10", "ansible_user": "ubuntu"}}},
        "lab_standins": {"children": {"lab": {}}},
    }
    assert yaml.safe_load(inventory.standins_file(site).read_text()) == {
        "gpustrap_simulated": True,
        "gpustrap_docker_repository": "http://10.1.2.2/docker",
    }
    assert "s3cret" not in inventory.nodes_file(site).read_text()
    inventory.write(site, [node])
    assert not inventory.standins_file(site).exists()
    inventory.remove(site)
    assert not inventory.nodes_file(site).exists()
    assert mine.read_text() == "mine"


def test_a_file_of_the_users_with_our_name_is_neither_replaced_nor_removed(node: LabNode, tmp_path: Path) -> None:
    site = Site(tmp_path)
    path = inventory.nodes_file(site)
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(GpustrapError) as caught:
        inventory.write(site, [node])
    assert caught.value.problems[0].code == "lab-file-is-yours"
    inventory.remove(site)
    assert path.read_text() == "mine"


def test_an_address_comes_again_only_when_all_others_were_used(tmp_path: Path) -> None:
    """A new node at a removed one's address could not be reached for a while."""
    subnet, last = ipaddress.IPv4Network("10.1.2.0/28"), tmp_path / "last-address"
    first = next(network.free_addresses(subnet, (), last))
    later = [next(network.free_addresses(subnet, ("10.1.2.12",), last)) for _ in range(4)]
    assert (first, later) == ("10.1.2.10", ["10.1.2.11", "10.1.2.13", "10.1.2.14", "10.1.2.10"])
    both = network.free_addresses(subnet, (), last)
    assert [next(both), next(both)] == ["10.1.2.11", "10.1.2.12"]


def test_a_node_has_the_same_hardware_address_at_every_start() -> None:
    assert network.mac("10.136.64.10") == "02:00:0a:88:40:0a"
    arguments = container.node_arguments("lab", "n1", "debian13", "10.136.64.10", "image")
    assert "--mac-address=02:00:0a:88:40:0a" in arguments
