"""plan: what is written, what is kept, and how it ends. Nodes are stood in for by recorded facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from gpustrap.catalog.loader import load_catalog
from gpustrap.commands import plan as command
from gpustrap.commands.freshness import check_freshness
from gpustrap.environments.closure import Compiled
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.node import Endpoint, Node, Secrets
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.report.plan_text import render
from gpustrap.resolve.plan import COMPONENTS
from gpustrap.site.lockfile import read_lock
from gpustrap.site.wrong import without_prefix

FACTS = Path(__file__).parent.parent / "cases" / "plan" / "facts"
GONE = GpustrapError(Problem("unreachable", "node n2", "does not answer", ExitCode.UNREACHABLE, remedy="ping n2"))


class World:
    """An inventory and its nodes, to be changed by a test."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        self.requests: dict[str, dict[str, Any]] = {"n1": {}, "n2": {}}
        self.answers: dict[str, Facts | GpustrapError] = {"n1": self.facts(), "n2": self.facts()}
        self.asked: list[str] = []

    @staticmethod
    def facts(docker: str = "26.1.5", **change: Any) -> Facts:
        data = yaml.safe_load((FACTS / "debian13.yml").read_text())
        data["package_manager"]["candidates"] |= {"docker.io": docker, "docker-cli": docker}
        return Facts.model_validate(data | change)

    def nodes(self, _site: Site, patterns: list[str] | None = None, _limit: str | None = None) -> tuple[Node, ...]:
        chosen = patterns or list(self.requests)
        return tuple(Node(Endpoint(n, n), (), Request.model_validate(self.requests[n])) for n in chosen)

    def read(self, _site: Site, nodes: tuple[Node, ...], *, packages: Any, **_more: Any) -> dict[str, Any]:
        self.asked = list(packages(nodes[0]))
        return {node.name: self.answers[node.name] for node in nodes}

    def plan(self, *patterns: str, **options: Any) -> command.Planned:
        options.setdefault("compiler", lambda _closure, _preferred: Compiled("torch==2.0\n"))
        return command.plan(self.site, patterns=list(patterns), secrets=Secrets(), **options)

    @property
    def text(self) -> str:
        return self.site.lock.read_text()

    def docker(self, name: str) -> str:
        lock = read_lock(self.site)
        assert lock is not None
        return str(lock.nodes[name].roles["docker"]["docker_packages"][0]["version"])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(command, "load_nodes", made.nodes)
    monkeypatch.setattr(command, "read_facts", made.read)
    return made


def test_the_same_plan_twice_is_the_same_file(world: World) -> None:
    first = world.plan()
    assert first.exit_code is ExitCode.OK
    assert first.changes == ("+ n1: new, debian 13 (trixie) x86_64", "+ n2: new, debian 13 (trixie) x86_64")
    before = world.text
    assert world.plan().changes == ()
    assert world.text == before


def test_nodes_are_asked_about_all_packages_that_may_matter(world: World) -> None:
    world.requests["n1"] = {"packages": ["htop"]}
    world.plan()
    assert {"htop", "docker.io", "docker-ce", "podman-docker", "chrony"} <= set(world.asked)


def test_locked_versions_stay_until_upgrade(world: World) -> None:
    world.plan()
    before = world.text
    world.answers["n1"] = world.facts("26.1.6")
    planned = world.plan()
    assert world.text == before, "news in the archive must not change the lock"
    assert any("26.1.6 is available" in c.reason for c in planned.nodes["n1"].choices)
    assert world.plan(check=True, upgrade=COMPONENTS).exit_code is ExitCode.REFUSED
    assert world.text == before
    assert world.plan(upgrade=COMPONENTS).exit_code is ExitCode.OK
    assert (world.docker("n1"), world.docker("n2")) == ("26.1.6", "26.1.5")


def test_a_refused_node_keeps_its_old_entry_and_stops_no_other(world: World) -> None:
    world.plan()
    world.requests = {"n1": {"conda_distribution": "miniconda"}, "n2": {"docker_users": ["ann"]}}
    planned = world.plan()
    assert planned.exit_code is ExitCode.REFUSED
    assert {p.subject for p in planned.problems} == {"node n1"}
    lock = read_lock(world.site)
    assert lock is not None
    assert lock.nodes["n1"].roles["conda"]["conda_distribution"] == "miniforge"
    assert lock.nodes["n2"].roles["docker"]["docker_users"] == ["ann"]


def test_an_unreachable_node_keeps_its_old_entry(world: World) -> None:
    world.plan()
    before = world.text
    world.answers["n2"] = GONE
    planned = world.plan()
    assert planned.exit_code is ExitCode.UNREACHABLE
    assert list(planned.nodes) == ["n1"]
    assert world.text == before


def test_nothing_is_written_when_no_node_has_a_plan(world: World) -> None:
    world.answers = {"n1": GONE, "n2": GONE}
    assert world.plan().exit_code is ExitCode.UNREACHABLE
    assert not world.site.lock.exists()


def test_planning_some_nodes_leaves_the_others_alone(world: World) -> None:
    world.plan()
    world.answers = {"n1": world.facts("27"), "n2": world.facts("27")}
    world.plan("n2", upgrade=COMPONENTS)
    assert (world.docker("n1"), world.docker("n2")) == ("26.1.5", "27")


def test_a_node_that_left_the_inventory_leaves_the_lock_only_with_the_whole_site(world: World) -> None:
    world.plan()
    del world.requests["n2"]
    world.plan("n1")
    assert "n2:" in world.text
    assert world.plan().changes == ("- n2: no longer in the inventory",)
    assert "n2:" not in world.text


def test_check_writes_nothing(world: World) -> None:
    planned = world.plan(check=True)
    assert planned.exit_code is ExitCode.REFUSED
    assert [p.code for p in planned.problems] == ["lock-stale"]
    assert not world.site.lock.exists()
    world.plan()
    assert world.plan(check=True).exit_code is ExitCode.OK


def test_a_plan_is_fresh_until_request_or_system_changes(world: World) -> None:
    world.plan("n1")
    lock = read_lock(world.site)
    assert lock is not None
    (n1, n2) = world.nodes(world.site, ["n1", "n2"])
    assert check_freshness(n1, world.facts("27"), lock) is None
    world.requests["n1"] = {"docker_users": ["ann"]}
    (changed,) = world.nodes(world.site, ["n1"])
    gpu = {"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300"}
    found = [
        check_freshness(n2, world.facts(), lock),
        check_freshness(changed, world.facts(), lock),
        check_freshness(n1, world.facts(pci=[gpu]), lock),
    ]
    assert [p.code for p in found if p] == ["lock-missing", "lock-stale", "lock-stale"]
    assert all(p.exit_code is ExitCode.REFUSED and p.remedy.startswith("gpustrap plan n") for p in found if p)


def test_equal_machines_share_a_table_and_markup_of_a_node_is_inert(world: World) -> None:
    world.answers["n1"] = world.answers["n2"] = world.facts("26[red]")
    planned = world.plan()
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(render(planned.plans, planned.changes))
    text = console.export_text()
    assert "n1, n2" in text
    assert "docker.io 26[red]" in text
    assert "+ n1: new" in text


def test_the_catalog_of_the_lock_is_the_one_it_was_planned_with(world: World) -> None:
    assert world.plan().lock.catalog == load_catalog().digest


def test_a_kept_version_that_is_gone_stays_and_is_warned_of(world: World) -> None:
    world.plan("n1")
    facts = world.facts("27")
    manager = facts.package_manager.model_copy(update={"versions": {"docker.io": ("27",)}})
    world.answers["n1"] = facts.model_copy(update={"package_manager": manager})
    planned = world.plan("n1")
    (finding,) = planned.plans["n1"].findings
    assert (finding.code, finding.severity, planned.exit_code) == ("locked-version-gone", "warning", ExitCode.OK)
    assert (world.docker("n1"), planned.changes) == ("26.1.5", ())
    assert world.plan("n1", upgrade=("docker",)).plans["n1"].findings == ()
    assert world.docker("n1") == "27"


def test_only_the_named_component_moves(world: World) -> None:
    world.plan()
    world.answers = {"n1": world.facts("27"), "n2": world.facts("27")}
    world.plan(upgrade=("conda",))
    assert (world.docker("n1"), world.docker("n2")) == ("26.1.5", "26.1.5")
    world.plan(upgrade=("docker",))
    assert (world.docker("n1"), world.docker("n2")) == ("27", "27")


def test_a_controller_too_old_is_warned_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = Problem("controller-too-old", "node n1", "its Python is 3.14", ExitCode.REFUSED, "up to 3.13", "a newer")
    monkeypatch.setattr(command, "controller_problem", lambda *_: trouble)
    planned = world.plan("n1")
    (finding,) = planned.plans["n1"].findings
    assert (finding.code, finding.severity, planned.written) == ("controller-too-old", "warning", True)
    assert (finding.message, finding.advice) == ("its Python is 3.14, so apply will refuse this node", "a newer")


def test_what_no_role_installs_is_pending_and_its_choices_say_so(world: World) -> None:
    gpu = {"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300"}
    system = {"id": "rocky", "version_id": "9", "codename": "", "architecture": "x86_64"}
    change = {"os": system, "package_manager": {"kind": "dnf"}, "pci": [gpu], "kernel": {"running": "5.14.0-611.el9"}}
    world.answers["n1"] = world.facts(**change, secure_boot={"enabled": False, "source": "efivar"})
    entry = world.plan("n1").nodes["n1"]
    pending = {choice.item: choice.pending for choice in entry.choices}
    assert (pending["environment-torch"], pending["driver"], pending["os"]) == (True, True, False)
    assert entry.roles == {}
    assert {"nvidia_driver", "ml_environments"} <= set(entry.pending)


@pytest.mark.parametrize(
    ("request_", "name", "uri", "retention"),
    [
        ({}, "debian-archive", "", "superseded"),  # the node's own sources say where the archive is
        ({"docker_origin": "upstream"}, "docker", "https://download.docker.com/linux/debian", "kept"),
        (
            {"docker_origin": "upstream", "docker_repository": "http://mirror.example/docker/"},
            "docker",
            "http://mirror.example/docker/linux/debian",
            "kept",
        ),
    ],
)
def test_the_lock_says_where_docker_comes_from(
    world: World, request_: dict[str, Any], name: str, uri: str, retention: str
) -> None:
    world.requests["n1"] = request_
    (row,) = world.plan("n1").nodes["n1"].repositories
    assert (row.name, row.retention) == (name, retention)
    assert row.uri == uri


def test_what_is_odd_about_the_inventory_stands_beside_the_plan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = without_prefix("driver_branch", "hosts.yml:3", world.site)
    monkeypatch.setattr(
        command, "load_nodes", lambda *_args: tuple(replace(node, findings=(odd,)) for node in world.nodes(world.site))
    )
    planned = world.plan()
    assert [plan.findings for plan in planned.plans.values()] == [(odd,), (odd,)]
    assert planned.exit_code is ExitCode.OK
