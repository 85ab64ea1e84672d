"""verify_nodes: every node ends with its checks or with why it has none."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpustrap.commands import verify
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.check import Check, NodeChecks, Verdict
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Endpoint, Node, Secrets
from gpustrap.model.progress import Step
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.verify import protocol, wanted

ENTRY = NodeLock(request_digest="a", system_digest="b", os="debian 13", choices=(), roles={})
NEXT = "gpustrap enroll n1"
ASKED = [w.id for w in wanted.WANTED if not w.role]


def node(name: str) -> Node:
    return Node(Endpoint(name, name), (), Request())


def unreachable(name: str) -> GpustrapError:
    return GpustrapError(Problem("unreachable", f"node {name}", "does not answer", ExitCode.UNREACHABLE))


def answered(verdict: str = "pass", reason: str = "") -> dict[str, Any]:
    return {"ok": True, "data": {"checks": [{"id": i, "verdict": verdict, "reason": reason} for i in ASKED]}}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Nodes n1 to n5 in the lock; what each answers and how its login ends can be set."""
    state = SimpleNamespace(site=Site(tmp_path), answers={}, logins={}, login="site key", asked=[], secrets=[])
    lock: Lock | None = Lock(tool="0", catalog="c", nodes={f"n{n}": ENTRY for n in range(1, 6)})
    state.lock = lock

    def ask(site: Site, nodes: Any, *, request: Any, progress: Any, **rest: Any) -> dict[str, Any]:
        state.asked += [(n.name, request(n)) for n in nodes]
        state.rest = rest
        for n in nodes:
            progress(Step(n.name, "answered", done=True))
        return {n.name: state.answers.get(n.name, answered()) for n in nodes}

    @contextmanager
    def connect(endpoint: Endpoint, *, secrets: Secrets, **_: Any) -> Any:
        state.secrets.append(secrets)
        ending = state.logins.get(endpoint.name, SimpleNamespace(rc=0, stdout=b"", stderr=b""))
        if isinstance(ending, GpustrapError):
            raise ending
        yield SimpleNamespace(run=lambda *_, **__: ending, login=state.login)

    monkeypatch.setattr(verify, "read_lock", lambda _site: state.lock)
    monkeypatch.setattr(verify, "ask_nodes", ask)
    monkeypatch.setattr(verify, "connect", connect)
    return state


def run(world: SimpleNamespace, *names: str, steps: list[Step] | None = None) -> dict[str, Any]:
    taken: list[Step] = [] if steps is None else steps
    secrets = Secrets(ssh_password="ssh-pw", become_password="sudo-pw")
    return verify.verify_nodes(world.site, [node(n) for n in names], secrets=secrets, progress=taken.append)


def test_each_node_has_its_own_ending(world: SimpleNamespace) -> None:
    world.answers = {
        "n2": answered("warn", "somewhat full"),
        "n3": answered("fail", "dead"),
        "n4": unreachable("n4"),
        "n5": {"ok": False, "error": {"code": "busy", "message": "another verification runs on this node"}},
    }
    steps: list[Step] = []
    results = run(world, "n1", "n2", "n3", "n4", "n5", "new", steps=steps)
    assert list(results) == ["n1", "n2", "n3", "n4", "n5", "new"]
    assert [results[n].verdict for n in ("n1", "n2", "n3")] == [Verdict.PASS, Verdict.WARN, Verdict.FAIL]
    codes = {n: results[n].exit_code for n in ("n4", "n5", "new")}
    assert codes == {"n4": ExitCode.UNREACHABLE, "n5": ExitCode.COULD_NOT_CHECK, "new": ExitCode.COULD_NOT_CHECK}
    assert "another verification" in results["n5"].problems[0].evidence
    assert results["new"].problems[0].remedy == "gpustrap plan new"
    ended = {s.node: s.ok for s in steps if s.done}
    assert ended == {"n1": True, "n2": True, "n3": False, "n4": False, "n5": False}


def test_without_a_lock_nothing_is_asked(world: SimpleNamespace) -> None:
    world.lock = None
    results = run(world, "n1")
    assert results["n1"].exit_code is ExitCode.COULD_NOT_CHECK
    assert world.asked == []


def test_the_login_is_made_with_the_key_alone(world: SimpleNamespace) -> None:
    results = run(world, "n1")
    assert results["n1"].checks[0].id == "ssh-login"
    assert world.secrets == [Secrets()]


def test_a_login_that_fails_is_a_failed_check(world: SimpleNamespace) -> None:
    refused = Problem(
        "auth", "node n1", "refuses the key", ExitCode.UNREACHABLE, "Permission denied", "gpustrap enroll n1"
    )
    world.logins = {
        "n1": GpustrapError(refused),
        "n2": SimpleNamespace(rc=1, stdout=b"", stderr=b"This account is not available"),
    }
    results = run(world, "n1", "n2")
    first, second = (results[n].checks[0] for n in ("n1", "n2"))
    assert (first.verdict, first.remedy) == (Verdict.FAIL, "gpustrap enroll n1")
    assert "Permission denied" in first.evidence
    assert (second.verdict, "not available" in second.evidence) == (Verdict.FAIL, True)


def test_a_login_with_another_key_is_a_warning(world: SimpleNamespace) -> None:
    world.login = "agent key me@desk"
    check = run(world, "n1")["n1"].checks[0]
    assert (check.verdict, check.remedy) == (Verdict.WARN, NEXT)
    assert "agent key me@desk" in check.reason


def test_the_checks_of_one_run_share_its_id_and_have_time_to_end(world: SimpleNamespace) -> None:
    run(world, "n1", "n2")
    requests = [request["args"] for _, request in world.asked]
    assert len({r["run_id"] for r in requests}) == 1
    assert [name for name, _ in world.asked] == ["n1", "n2"]
    assert world.rest["timeout"] > wanted.SECONDS
    assert world.rest["asking"] == f"checking, {wanted.SECONDS // 60} minutes at most"
    assert world.rest["packages"] == (protocol.NODE_PACKAGE, verify.NODE_PACKAGE)


@pytest.mark.parametrize(
    "answer",
    [{}, {"ok": "yes", "data": {}}, {"ok": True}, {"ok": True, "data": []}, {"ok": False, "error": "x"}],
    ids=str,
)
def test_an_answer_of_another_shape_could_not_be_checked(world: SimpleNamespace, answer: dict[str, Any]) -> None:
    world.answers = {"n1": answer}
    assert run(world, "n1")["n1"].exit_code is ExitCode.COULD_NOT_CHECK


def checks(verdict: str) -> NodeChecks:
    return NodeChecks(node="n", checks=(Check(id="a", title="a", verdict=Verdict(verdict)),))


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], ExitCode.OK),
        ([checks("pass")], ExitCode.OK),
        ([checks("pass"), checks("warn")], ExitCode.WARNINGS),
        ([checks("warn"), checks("fail")], ExitCode.VERIFY_FAILED),
        ([checks("skip")], ExitCode.VERIFY_FAILED),
        ([checks("pass"), unreachable("x")], ExitCode.UNREACHABLE),
        ([checks("fail"), unreachable("x")], ExitCode.VERIFY_FAILED),
    ],
)
def test_exit_code(results: list[Any], code: ExitCode) -> None:
    assert verify.exit_code({str(n): r for n, r in enumerate(results)}) is code


def test_a_gpu_is_held_against_its_equals_in_other_nodes(world: SimpleNamespace) -> None:
    def measured(value: float) -> dict[str, Any]:
        found = answered()
        measure = {"name": "cublas-fp16", "subject": "GPU-1", "kind": "A100", "value": value, "unit": "TFLOPS"}
        found["data"]["checks"][0]["data"] = {"measures": [measure]}
        gpu = {"address": "0000:81:00.0", "vendor": "10de", "device": "20b0", "pci_class": "0302", "uuid": "GPU-1"}
        machine = {"os": {"id": "debian", "architecture": "x86_64"}, "kernel": {"running": "6"}, "pci": [gpu]}
        found["data"]["facts"] = machine
        return found

    world.answers = {"n1": measured(100), "n2": measured(100), "n3": measured(80)}
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    found = verify.verify(world.site, nodes, secrets=Secrets(), facts=True, run_id="r1")
    assert [found[name].checks.verdict.value for name in ("n1", "n2", "n3")] == ["pass", "pass", "fail"]
    (slow,) = [check for check in found["n3"].checks.checks if check.measures]
    assert slow.reason == "GPU 0000:81:00.0: cublas-fp16 is 80 TFLOPS, 20 % behind the middle of the fleet (100)"
    assert [(request["args"]["facts"], request["args"]["run_id"]) for _, request in world.asked] == [(True, "r1")] * 3


@pytest.mark.parametrize("facts", [None, "x", {"os": 1}, {"pci": []}])
def test_facts_that_cannot_be_read_cost_no_check(world: SimpleNamespace, facts: Any) -> None:
    world.answers = {"n1": {"ok": True, "data": {**answered()["data"], "facts": facts}}}
    found = verify.verify(world.site, [node("n1")], secrets=Secrets(), facts=True)
    assert found["n1"].facts is None
    assert found["n1"].checks.verdict is Verdict.PASS
