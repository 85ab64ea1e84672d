"""Locked versions that an archive no longer has: refused by apply, warned of by plan."""

from __future__ import annotations

from typing import Any

import pytest

from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts, KernelFacts, OsFacts, PackageManagerFacts
from gpustrap.model.lock import LockedRepository, NodeLock
from gpustrap.resolve.locked_versions import LISTED, gone_versions, locked_packages, refuse_gone, warn_gone

ARCHIVE = LockedRepository(
    name="debian-archive",
    uri="http://archive.example/debian",
    retention="superseded",
    snapshot="https://snapshot.example/{time}/",
)


def entry(version: str = "26.1", **more: Any) -> NodeLock:
    docker = {"docker_packages": [{"name": "docker.io", "version": version}], "docker_conflicting_packages": ["podman"]}
    roles = {"ubuntu_server": {"ubuntu_server_packages": ["curl"]}, "docker": docker}
    return NodeLock(request_digest="r", system_digest="s", os="d", choices=(), roles=roles, **more)


def facts(*versions: str, installed: str = "") -> Facts:
    manager = PackageManagerFacts(
        kind="apt",
        versions={"docker.io": versions} if versions else {},
        packages={"docker.io": installed} if installed else {},
    )
    return Facts(
        os=OsFacts(id="debian", architecture="x86_64"), kernel=KernelFacts(running="6"), package_manager=manager
    )


@pytest.mark.parametrize(
    ("known", "gone"),
    [
        (facts("26.2"), ["docker.io=26.1"]),
        (facts("26.2", installed="26.0"), ["docker.io=26.1"]),
        (facts("26.2", "26.1"), []),
        (facts("26.2", installed="26.1"), []),
        (facts(), []),  # no source has it: the role may be about to add its repository
        (facts(*(f"27.{i}" for i in range(LISTED))), []),  # the list was cut
    ],
)
def test_a_version_is_gone_where_apt_knows_the_package_and_not_the_version(known: Facts, gone: list[str]) -> None:
    assert [str(g) for g in gone_versions(entry(), known)] == gone


def test_only_the_roles_of_a_run_count_and_an_open_version_is_none() -> None:
    assert gone_versions(entry(), facts("26.2"), ("conda",)) == ()
    assert gone_versions(entry(), facts("26.2"), ("docker",)) != ()
    assert gone_versions(entry(""), facts("26.2")) == ()
    waiting = entry().model_copy(update={"roles": {}, "pending": entry().roles})
    assert gone_versions(waiting, facts("26.2")) == ()


def test_a_node_is_asked_for_what_it_has_locked() -> None:
    assert locked_packages(entry()) == ["docker.io"]
    assert locked_packages(None) == []


def test_the_refusal_has_three_ways_out() -> None:
    locked = entry(repositories=(ARCHIVE,))
    problem = refuse_gone("n1", locked, gone_versions(locked, facts("26.2", installed="26.0")))
    assert (problem.code, problem.exit_code) == ("locked-version-gone", ExitCode.REFUSED)
    assert problem.message == "locked docker.io=26.1 can no longer be had; nothing was changed"
    assert problem.evidence == "docker.io=26.1: installed 26.0, available 26.2"
    assert problem.remedy.startswith("gpustrap plan n1 --upgrade --only docker; ")
    assert "https://snapshot.example/YYYYMMDDTHHMMSSZ/" in problem.remedy
    assert "a mirror of your own" in problem.remedy


def test_the_warning_says_the_same_and_that_apply_will_refuse() -> None:
    gone = gone_versions(entry(), facts("26.2"))
    finding, problem = warn_gone("n1", entry(), gone), refuse_gone("n1", entry(), gone)
    assert (finding.code, finding.severity, finding.advice) == (problem.code, "warning", problem.remedy)
    assert "apply will refuse" in finding.message
