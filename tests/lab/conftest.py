"""Lab nodes for tests. Where containers cannot run, these tests fail and say what is missing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpustrap.lab import inventory
from gpustrap.lab.manager import Lab, LabNode, NodeSpec, all_statuses
from gpustrap.lab.preflight import missing
from gpustrap.model.site import Site

PREFIX = "test-"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything beside this file needs lab nodes; ``-m 'not lab'`` leaves it out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("lab")


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """This test run's own lab; it goes at the end, and what a crashed run left goes now."""
    problems = missing()
    if problems:
        pytest.fail("\n".join(f"{p.message}\n{p.evidence}\nNext: {p.remedy}" for p in problems), pytrace=False)
    for name in {status.lab for status in all_statuses()}:
        if name.startswith(PREFIX) and not Path("/proc", name.removeprefix(PREFIX)).exists():
            Lab(name).down()
    own = Lab(f"{PREFIX}{os.getpid()}")
    try:
        yield own
    finally:
        own.down()


@pytest.fixture(scope="session")
def node_names() -> Iterator[str]:
    """Names no node of this run has had."""
    return (f"n{number}" for number in itertools.count(1))


@pytest.fixture
def make_node(lab: Lab, node_names: Iterator[str]) -> Iterator[Callable[..., LabNode]]:
    """Start a fresh node for this test: ``make_node(os="debian13", bare=False, snapshot=None)``."""
    started: list[str] = []

    def make(os: str = "debian13", *, bare: bool = False, snapshot: str | None = None) -> LabNode:
        name = next(node_names)
        started.append(name)
        return lab.up([NodeSpec(name, os, bare=bare, snapshot=snapshot)])[0]

    yield make
    for name in started:
        lab.remove(name)


@pytest.fixture
def make_site() -> Callable[..., Site]:
    """Make a site with an inventory of nodes: ``make_site(tmp_path, *nodes)``."""

    def make(root: Path, *nodes: LabNode) -> Site:
        site = Site(root / "site")
        inventory.write(site, nodes)
        return site

    return make
