"""The order of an apply and what it records, with Ansible and the nodes played by recorded events."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpustrap.commands import apply as module
from gpustrap.commands import apply_session, readiness
from gpustrap.commands.apply import Applied, ApplyOptions, apply
from gpustrap.commands.ledgers import Opened
from gpustrap.converge.session import SessionResult
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.check import Check, NodeChecks, Verdict
from gpustrap.model.facts import Facts, FilesystemFacts, KernelFacts, OsFacts, PackageManagerFacts
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Access, Endpoint, Escalation, Node, Secrets
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.resolve.digests import request_digest, system_digest
from gpustrap.site.node_lock import hold_nodes

CASES = Path(__file__).parent.parent / "cases" / "events"
FACTS = Facts(os=OsFacts(id="debian", architecture="x86_64"), kernel=KernelFacts(running="6"))
FULL = FACTS.model_copy(update={"filesystems": (FilesystemFacts(mount="/", size=10, free=1),)})
ENTRY = NodeLock(
    request_digest=request_digest(Request()),
    system_digest=system_digest(FACTS),
    os="d",
    choices=(),
    roles={"docker": {}},
)
GONE = GpustrapError(Problem("unreachable", "node gone", "no answer", ExitCode.UNREACHABLE, remedy="look"))


@dataclass
class World:
    """What the nodes and Ansible are, and what was done to them."""

    facts: dict[str, Facts | GpustrapError]
    case: str = "check-mode"
    cancelled: bool = False
    verdict: Verdict = Verdict.PASS
    opened: list[str] = field(default_factory=list)
    closed: dict[str, bool] = field(default_factory=dict)
    released: dict[str, str | None] = field(default_factory=dict)
    claims_lost: tuple[str, ...] = ()
    dies: Exception | None = None

    def open(self, _site: Any, chosen: Any, *_rest: Any, **_more: Any) -> Opened:
        self.opened = [n.name for n in chosen]
        return Opened({}, {"n2": "r0"})

    def release(self, _site: Any, chosen: Any, _run: str, before: dict[str, str], **_rest: Any) -> dict[str, Any]:
        self.released |= {n.name: before.get(n.name) for n in chosen}
        return {}

    def close(self, _site: Any, chosen: Any, _run: str, *, complete: dict[str, bool], **_rest: Any) -> dict[str, Any]:
        self.closed = {n.name: complete[n.name] for n in chosen}
        return {}

    ran: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    variables: Any = None
    verified: Any = "nothing"
    entry: NodeLock = ENTRY
    packages: list[str] = field(default_factory=list)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def run(world: World, **options: Any) -> Applied:
        nodes = tuple(Node(Endpoint(name, name), (), Request()) for name in world.facts)
        lock = Lock(tool="t", catalog="c", nodes=dict.fromkeys(world.facts, world.entry))

        def ansible(settings: Any, _secrets: Any, handle: Any) -> SessionResult:
            world.ran = [t.endpoint.name for t in settings.targets]
            world.variables = settings.variables
            if world.dies:
                raise world.dies
            for line in (CASES / f"{world.case}.jsonl").read_text().splitlines():
                raw = json.loads(line)
                if not (world.cancelled and raw["event"] == "playbook_on_stats"):
                    handle(raw)
            return SessionResult(code=0, cancelled=world.cancelled, claims={}, claims_lost=world.claims_lost)

        def read(_site: Any, chosen: Any, *, packages: Any, **_rest: Any) -> dict[str, Any]:
            world.asked = [n.name for n in chosen]
            world.packages = [p for n in chosen for p in packages(n)]
            return world.facts

        def check(_site: Any, chosen: Any, *, roles: Any, **_rest: Any) -> dict[str, Any]:
            world.verified = roles
            one = Check(id="c", title="c", verdict=world.verdict)
            return {n.name: NodeChecks(node=n.name, checks=(one,)) for n in chosen}

        for name, fake in {
            "load_nodes": lambda *_a: nodes,
            "read_lock": lambda _s: lock,
            "read_facts": read,
            "access_of": lambda *_a: Access(Escalation.ROOT),
            "open_ledgers": world.open,
            "release_ledgers": world.release,
            "close_ledgers": world.close,
            "run_ansible": ansible,
            "verify_nodes": check,
        }.items():
            monkeypatch.setattr(apply_session if name == "access_of" else module, name, fake)
        return apply(Site(tmp_path), options=ApplyOptions(**options), secrets=Secrets())

    return run


def outcomes(applied: Applied) -> dict[str, str]:
    return {n.node: n.outcome.value for n in applied.summary.nodes}


def test_a_whole_run_that_ends_well_is_complete(play: Any) -> None:
    world = World({"n1": FACTS})
    applied = play(world)
    assert (applied.exit_code, outcomes(applied)) == (ExitCode.OK, {"n1": "changed"})
    assert (world.opened, world.closed) == (["n1"], {"n1": True})
    assert json.loads((applied.directory / "summary.json").read_text())["nodes"][0]["outcome"] == "changed"
    assert (applied.directory / "report.html").exists()


def test_some_roles_are_not_the_whole(play: Any) -> None:
    world = World({"n1": FACTS})
    play(world, tags=("docker",))
    assert world.closed == {"n1": False}


@pytest.mark.parametrize(("tags", "roles"), [((), None), (("docker",), ("docker",))])
def test_only_the_roles_of_a_run_are_verified_after_it(play: Any, tags: Any, roles: Any) -> None:
    world = World({"n1": FACTS})
    play(world, tags=tags)
    assert world.verified == roles


def test_check_mode_leaves_no_trace_on_the_node(play: Any) -> None:
    world = World({"n1": FACTS})
    applied = play(world, check=True)
    assert (applied.exit_code, outcomes(applied)) == (ExitCode.OK, {"n1": "would-change"})
    assert (world.opened, world.closed, applied.summary.checks) == ([], {}, ())


def test_a_failure_is_recorded_as_incomplete_and_not_verified(play: Any) -> None:
    world = World({"n1": FACTS}, case="assertion")
    applied = play(world)
    assert (applied.exit_code, outcomes(applied)) == (ExitCode.APPLY_FAILED, {"n1": "failed"})
    assert world.closed == {"n1": False}
    assert applied.summary.checks == ()
    assert "ansible.log" in applied.summary.nodes[0].failure.hint


def test_a_cancelled_run_stays_open(play: Any) -> None:
    world = World({"n1": FACTS}, cancelled=True)
    applied = play(world)
    assert (applied.exit_code, outcomes(applied)) == (ExitCode.INTERRUPTED, {"n1": "unknown"})
    assert (world.opened, world.closed) == (["n1"], {})
    assert applied.summary.checks == ()


def test_no_run_stays_open_where_none_began_and_an_earlier_one_is_open_again(play: Any) -> None:
    world = World({"n1": FACTS, "n2": FACTS, "n3": FACTS}, case="assertion")
    applied = play(world)
    assert outcomes(applied) == {"n1": "failed", "n2": "not-run", "n3": "not-run"}
    assert (world.closed, world.released) == ({"n1": False}, {"n2": "r0", "n3": None})


def test_a_turn_that_never_came_is_no_success(play: Any) -> None:
    assert play(World({"n1": FACTS, "n2": FACTS})).exit_code is ExitCode.REFUSED


def test_when_ansible_cannot_be_started_no_run_stays_open(play: Any) -> None:
    world = World({"n1": FACTS, "n2": FACTS}, dies=OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        play(world)
    assert world.released == {"n1": None, "n2": "r0"}


@pytest.mark.parametrize(("cancelled", "codes"), [(False, ["claims-lost"]), (True, [])])
def test_claims_that_were_cut_off_are_told_unless_the_run_was(play: Any, cancelled: bool, codes: list[str]) -> None:
    world = World({"n1": FACTS}, cancelled=cancelled, claims_lost=("not a claim: {",))
    applied = play(world)
    assert [p.code for p in applied.problems] == codes
    assert world.closed == ({} if cancelled else {"n1": False})
    assert (applied.directory / "summary.json").exists()


def test_refused_and_unreachable_nodes_stop_no_other(play: Any) -> None:
    stale = FACTS.model_copy(update={"os": FACTS.os.model_copy(update={"version_id": "99"})})
    world = World({"stale": stale, "n1": FACTS, "gone": GONE, "full": FULL})
    applied = play(world)
    assert world.ran == world.opened == ["n1"]
    assert outcomes(applied) == {"stale": "not-run", "n1": "changed", "gone": "unreachable", "full": "not-run"}
    assert [n.failure.task for n in applied.summary.nodes if n.failure] == ["lock-stale", "unreachable", "disk-full"]
    assert applied.exit_code is ExitCode.UNREACHABLE  # worse than refused


@pytest.mark.parametrize("check", [False, True])
def test_a_node_at_work_is_refused_and_the_others_go_on(play: Any, tmp_path: Path, check: bool) -> None:
    world = World({"n1": FACTS, "n2": FACTS})
    with hold_nodes(Site(tmp_path), ["n2"], "r1"):
        applied = play(world, check=check)
    failure = applied.summary.nodes[1].failure
    assert (world.ran, world.asked, applied.exit_code) == (["n1"], ["n1"], ExitCode.REFUSED)
    assert (failure.task, failure.hint) == ("node-busy", "wait for it to end, then gpustrap apply n2")
    assert re.fullmatch(rf"another apply \(pid {os.getpid()}, run r1, since ..:.. UTC\) is at work.*", failure.message)


@pytest.mark.parametrize("dies", [None, OSError(28, "No space left on device")])
def test_a_run_gives_its_nodes_free_however_it_ends(play: Any, tmp_path: Path, dies: Exception | None) -> None:
    with suppress(OSError):
        play(World({"n1": FACTS}, dies=dies))
    with hold_nodes(Site(tmp_path), ["n1"], "r2") as busy:
        assert busy == {}


@pytest.mark.parametrize(
    ("tags", "message", "remedy"),
    [
        (("conda",), "conda is not in the lock of n1; nothing was run", "gpustrap apply n1 --tags docker"),
        (("conda", "docker"), "conda is not in the lock of n1; nothing was run", "gpustrap apply n1 --tags docker"),
        (
            ("conda", "ubuntu_server"),
            "conda, ubuntu_server are not in the lock of n1; nothing was run",
            "gpustrap apply n1 --tags docker",
        ),
    ],
)
def test_a_role_the_node_was_not_planned_for_is_refused(play: Any, tags: Any, message: str, remedy: str) -> None:
    world = World({"n1": FACTS})
    applied = play(world, tags=tags)
    failure = applied.summary.nodes[0].failure
    assert (failure.task, failure.message, failure.hint) == ("role-not-in-lock", message, remedy)
    assert (world.opened, world.ran, applied.exit_code) == ([], [], ExitCode.REFUSED)


LOCKED = ENTRY.model_copy(
    update={"roles": {"docker": {"docker_packages": [{"name": "docker.io", "version": "26.1"}]}, "conda": {}}}
)
DROPPED = FACTS.model_copy(
    update={"package_manager": PackageManagerFacts(kind="apt", versions={"docker.io": ("26.2",)})}
)


@pytest.mark.parametrize("check", [False, True])
def test_a_locked_version_that_is_gone_is_refused_before_any_change(play: Any, check: bool) -> None:
    world = World({"n1": DROPPED, "n2": FACTS}, entry=LOCKED)
    applied = play(world, check=check)
    failure = applied.summary.nodes[0].failure
    assert (failure.task, applied.exit_code) == ("locked-version-gone", ExitCode.REFUSED)
    assert "gpustrap plan n1 --upgrade --only docker" in failure.hint
    assert (world.ran, world.packages) == (["n2"], ["docker.io", "docker.io"])


def test_a_locked_version_that_is_gone_stops_no_other_role(play: Any) -> None:
    world = World({"n1": DROPPED}, entry=LOCKED)
    play(world, tags=("conda",))
    assert world.ran == ["n1"]


@pytest.mark.parametrize("check", [False, True])
def test_a_node_whose_python_is_too_new_for_this_machine_is_refused(
    play: Any, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    trouble = Problem("controller-too-old", "node n1", "its Python is 3.14", ExitCode.REFUSED, remedy="a newer one")
    monkeypatch.setattr(readiness, "controller_problem", lambda *_: trouble)
    world = World({"n1": FACTS})
    applied = play(world, check=check)
    assert (world.opened, world.ran, applied.exit_code) == ([], [], ExitCode.REFUSED)
    assert applied.summary.nodes[0].failure.task == "controller-too-old"


def test_nothing_but_refusals_runs_no_ansible(play: Any) -> None:
    world = World({"full": FULL})
    applied = play(world)
    assert (world.ran, applied.exit_code) == ([], ExitCode.REFUSED)
    assert json.loads((applied.directory / "summary.json").read_text())["nodes"][0]["failure"]["task"] == "disk-full"


@pytest.mark.parametrize(
    ("verdict", "code"), [(Verdict.FAIL, ExitCode.VERIFY_FAILED), (Verdict.WARN, ExitCode.WARNINGS)]
)
def test_verify_has_the_last_word(play: Any, verdict: Verdict, code: ExitCode) -> None:
    assert play(World({"n1": FACTS}, verdict=verdict)).exit_code is code
    assert play(World({"n1": FACTS}, verdict=verdict), verify=False).exit_code is ExitCode.OK


@pytest.mark.parametrize("serial", ["abc", "0", "-1", "", "1.5", "25 %", "1\n", "٣", "%"])
def test_a_serial_that_is_no_number_runs_nothing(play: Any, serial: str) -> None:
    world = World({"n1": FACTS})
    with pytest.raises(GpustrapError, match="no number of nodes") as caught:
        play(world, serial=serial)
    assert caught.value.exit_code is ExitCode.USAGE
    assert (world.opened, world.ran) == ([], [])


@pytest.mark.parametrize("serial", ["1", "20", "25%", "100%"])
def test_numbers_and_percentages_of_nodes_are_taken(play: Any, serial: str) -> None:
    assert play(World({"n1": FACTS}), serial=serial).exit_code is ExitCode.OK


def test_a_misspelt_role_runs_nothing(play: Any) -> None:
    world = World({"n1": FACTS})
    with pytest.raises(GpustrapError, match="no role dockre"):
        play(world, tags=("docker", "dockre"))
    assert world.opened == []


@pytest.mark.parametrize(
    ("case", "code", "outcome", "complete", "verified"),
    [
        ("reboot-needed", ExitCode.REBOOT_NEEDED, "unchanged", False, False),
        ("reboot-person", ExitCode.WAITING_FOR_PERSON, "unchanged", False, False),
        ("reboot-done", ExitCode.OK, "changed", True, True),
        ("reboot-next-boot", ExitCode.WARNINGS, "unchanged", True, True),
        ("reboot-useless", ExitCode.APPLY_FAILED, "failed", False, False),
        ("reboot-lost", ExitCode.UNREACHABLE, "unreachable", None, False),
    ],
)
def test_a_reboot_that_is_due_ends_with_its_own_code_and_is_not_the_whole(
    play: Any, case: str, code: ExitCode, outcome: str, complete: bool | None, verified: bool
) -> None:
    world = World({"n1": FACTS}, case=case)
    applied = play(world)
    assert (applied.exit_code, outcomes(applied)) == (code, {"n1": outcome})
    assert world.closed.get("n1") is complete
    assert (world.verified != "nothing") is verified
    [run] = json.loads((applied.directory / "summary.json").read_text())["nodes"]
    assert [step["state"] for step in run["boots"]] == [
        case.removeprefix("reboot-").replace("needed", "reboot-needed").replace("done", "rebooted")
    ]


def test_check_mode_has_no_code_of_its_own_for_a_reboot(play: Any) -> None:
    assert play(World({"n1": FACTS}, case="reboot-needed"), check=True).exit_code is ExitCode.OK


def test_leave_to_reboot_is_given_to_ansible_as_a_variable(play: Any) -> None:
    world = World({"n1": FACTS})
    play(world, reboot=True)
    assert world.variables == {"gpustrap_reboot": True}


def test_the_one_time_password_is_shown_where_it_was_used_and_written_nowhere(play: Any) -> None:
    entry = ENTRY.model_copy(update={"roles": {"nvidia_driver": {"nvidia_driver_mok": True}}})
    applied = play(World({"n1": FACTS}, case="reboot-person", entry=entry))
    assert re.fullmatch(r"[bcdefghijklnoprstuvx]{12}", applied.password)
    written = b"".join(p.read_bytes() for p in applied.directory.rglob("*") if p.is_file())
    assert applied.password.encode() not in written
    assert applied.password not in repr(applied)


@pytest.mark.parametrize(("mok", "case"), [(True, "reboot-needed"), (False, "reboot-person")])
def test_a_password_that_nobody_needs_is_not_shown(play: Any, mok: bool, case: str) -> None:
    entry = ENTRY.model_copy(update={"roles": {"nvidia_driver": {"nvidia_driver_mok": mok}}})
    assert play(World({"n1": FACTS}, case=case, entry=entry)).password == ""
