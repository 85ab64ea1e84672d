"""verify: proves what a node was given, and leaves the node as found."""

from __future__ import annotations

import secrets as random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpustrap.commands.inspect import validate
from gpustrap.commands.probe import NODE_PACKAGE, ask_nodes
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.check import Check, Level, NodeChecks, Verdict
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import SEE_BELOW, Progress, Step, silent
from gpustrap.model.site import Site
from gpustrap.site.lockfile import read_lock
from gpustrap.ssh.auth import SITE_KEY
from gpustrap.ssh.fanout import for_each
from gpustrap.ssh.session import connect
from gpustrap.verify import fleet, protocol
from gpustrap.verify.wanted import LOGIN_SECONDS

VERDICT_CODES = {
    Verdict.PASS: ExitCode.OK,
    Verdict.WARN: ExitCode.WARNINGS,
    Verdict.FAIL: ExitCode.VERIFY_FAILED,
    Verdict.SKIP: ExitCode.COULD_NOT_CHECK,
}


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of one node.

    Attributes:
        checks: All of them.
        facts: What it is, where that was asked and can be read.
    """

    checks: NodeChecks
    facts: Facts | None = None


@dataclass(frozen=True, slots=True)
class _Verification:
    site: Site
    lock: Lock | None
    run_id: str
    roles: Collection[str] | None
    level: Level
    facts: bool

    def scope(self, name: str) -> protocol.Scope:
        """What is checked of one node."""
        assert self.lock is not None  # noqa: S101 - only planned nodes are asked
        return protocol.Scope(name, self.lock.nodes[name], self.roles, self.level)

    def request(self, node: Node) -> dict[str, Any]:
        """What to ask one node; the time is taken just before it is sent."""
        request = protocol.build_request(self.scope(node.name), run_id=self.run_id, now=time.time())
        request["args"]["facts"] = self.facts
        return request

    def login(self, node: Node) -> Check:
        """Log in anew with keys alone; it should be the site's that is taken."""
        if node.endpoint.local:
            return protocol.no_login_check()
        start = time.monotonic()
        try:
            with connect(
                node.endpoint, known_hosts=self.site.known_hosts, identity=self.site.ssh_key, secrets=Secrets()
            ) as session:
                answer, login = session.run("true", timeout=30), session.login
        except GpustrapError as error:
            first = error.problems[0]
            return protocol.login_check(f"{first.message}\n{first.evidence}".strip(), first.remedy)
        if answer.rc != 0:
            return protocol.login_check(f"true: exit status {answer.rc}\n{answer.stderr.decode(errors='replace')}")
        if login != SITE_KEY:
            return protocol.other_login_check(login, f"gpustrap enroll {node.name}")
        return protocol.login_check(seconds=round(time.monotonic() - start, 3))


def verify_nodes(
    site: Site,
    nodes: Sequence[Node],
    *,
    secrets: Secrets,
    roles: Collection[str] | None = None,
    forks: int = 20,
    progress: Progress = silent,
) -> dict[str, NodeChecks | GpustrapError]:
    """Check nodes against the site's lock; one round trip for the checks and one login.

    Args:
        site: The site.
        nodes: Which nodes.
        secrets: Passwords of this run.
        roles: Check only what these roles did, and what holds for every node; None for all of the lock.
        forks: Nodes worked on at a time.
        progress: Told how it goes.

    Returns:
        For each node its checks, or why it could not be checked.
    """
    found = verify(site, nodes, secrets=secrets, roles=roles, forks=forks, progress=progress)
    return {name: one.checks if isinstance(one, Verified) else one for name, one in found.items()}


def verify(
    site: Site,
    nodes: Sequence[Node],
    *,
    secrets: Secrets,
    roles: Collection[str] | None = None,
    level: Level = "quick",
    facts: bool = False,
    run_id: str = "",
    forks: int = 20,
    progress: Progress = silent,
) -> dict[str, Verified | GpustrapError]:
    """The same at any level, with what each node is where ``facts`` are asked for.

    ``run_id`` labels what the checks make on the node.
    """
    verification = _Verification(site, read_lock(site), run_id or random.token_hex(8), roles, level, facts)
    planned = [n for n in nodes if verification.lock and n.name in verification.lock.nodes]
    results: dict[str, Verified | GpustrapError] = {
        n.name: GpustrapError(_not_planned(n.name)) for n in nodes if n not in planned
    }
    longest = max((verification.scope(n.name).seconds for n in planned), default=0)
    answers = ask_nodes(
        site,
        planned,
        secrets=secrets,
        request=verification.request,
        entry=protocol.ENTRY,
        packages=(protocol.NODE_PACKAGE, NODE_PACKAGE),
        forks=forks,
        timeout=longest + LOGIN_SECONDS,
        asking=f"checking, {longest // 60} minutes at most",
        progress=lambda step: progress(Step(step.node, step.text)) if not step.done else None,
    )
    answered = [n for n in planned if not isinstance(answers[n.name], GpustrapError)]
    logins = for_each(answered, verification.login, forks=forks)
    for node in planned:
        results[node.name] = _result(verification.scope(node.name), answers[node.name], logins.get(node.name))
    verified = {name: one for name, one in results.items() if isinstance(one, Verified)}
    places = {name: {g.uuid: g.address for g in one.facts.gpus} for name, one in verified.items() if one.facts}
    compared = fleet.compare({name: one.checks for name, one in verified.items()}, places)
    results |= {name: replace(one, checks=compared[name]) for name, one in verified.items()}
    for node in planned:
        progress(_last_step(node.name, results[node.name]))
    return {n.name: results[n.name] for n in nodes}


def _result(
    scope: protocol.Scope, answer: dict[str, Any] | GpustrapError, login: Check | GpustrapError | None
) -> Verified | GpustrapError:
    if isinstance(answer, GpustrapError):
        return answer
    if isinstance(login, GpustrapError):
        return login
    error = answer.get("error")
    if answer.get("ok") is not True or not isinstance(answer.get("data"), dict):
        return GpustrapError(_broken(scope.name, error if isinstance(error, dict) else {}))
    assert login is not None  # noqa: S101 - every node that answered was logged in to
    facts = validate(scope.name, answer["data"].get("facts"))
    checks = protocol.with_login(scope.name, login, protocol.read_answer(scope, answer["data"]))
    return Verified(checks, facts if isinstance(facts, Facts) else None)


def exit_code(results: dict[str, NodeChecks | GpustrapError]) -> ExitCode:
    """What a verification of several nodes ends with."""
    return worst(r.exit_code if isinstance(r, GpustrapError) else VERDICT_CODES[r.verdict] for r in results.values())


def _last_step(name: str, result: Verified | GpustrapError) -> Step:
    if isinstance(result, GpustrapError):
        return Step(name, SEE_BELOW, done=True, ok=False)
    bad = [c.title for c in result.checks.checks if c.verdict is Verdict.FAIL]
    text = f"failed: {'; '.join(bad)}" if bad else f"verified: {result.checks.verdict.value}"
    return Step(name, text, done=True, ok=not bad)


def _not_planned(name: str) -> Problem:
    return Problem(
        code="not-planned",
        subject=f"node {name}",
        message="is not in the lock, so nothing says what it should be",
        exit_code=ExitCode.COULD_NOT_CHECK,
        remedy=f"gpustrap plan {name}",
    )


def _broken(name: str, error: dict[str, Any]) -> Problem:
    return Problem(
        code="could-not-check",
        subject=f"node {name}",
        message="the checks did not run",
        exit_code=ExitCode.COULD_NOT_CHECK,
        evidence=str(error.get("message", "no answer that can be read"))[:1000],
        remedy=f"gpustrap verify {name}",
    )
