"""What is asked of a node, and how its answers become checks: a node's answer is hostile input."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpustrap.content import PACKAGE
from gpustrap.model.check import WORST_FIRST, Check, Level, NodeChecks, Verdict
from gpustrap.model.lock import NodeLock
from gpustrap.verify import kernels, remedies
from gpustrap.verify.wanted import ENVIRONMENTS, ITEMS, Variables, Wanted, seconds, units, wanted_checks

NODE_PACKAGE: Path = PACKAGE / "verify" / "gpustrap_verify"
ENTRY = "gpustrap_verify.main"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is checked of one node.

    Attributes:
        name: Inventory name.
        lock: The node's entry of the lock.
        roles: Only the work of these roles, and what holds for every node; None for all of the lock.
        level: How thorough.
    """

    name: str
    lock: NodeLock
    roles: Collection[str] | None = None
    level: Level = "quick"

    @property
    def seconds(self) -> int:
        """How long all of it may take."""
        return seconds(self.lock, self.level)

    def left_out(self, wanted: Wanted) -> str:
        """Why a check is not made; empty when it is."""
        if wanted.role and wanted.role not in self.lock.roles:
            return f"{wanted.role} is not in this node's lock"
        if wanted.role and self.roles is not None and wanted.role not in self.roles:
            return f"this run was only about {', '.join(sorted(self.roles))}"
        return ""

    def done(self) -> NodeLock:
        """The entry without the roles left out: nobody knows whether their work was ever done."""
        roles = {n: v for n, v in self.lock.roles.items() if self.roles is None or n in self.roles}
        return self.lock.model_copy(update={"roles": roles})


def build_request(scope: Scope, *, run_id: str, now: float) -> dict[str, Any]:
    """The request for the node program.

    Args:
        scope: What to check.
        run_id: Labels what the checks make on the node.
        now: This machine's clock, seconds since the epoch.
    """
    done = scope.done()
    wanted = [one for one in wanted_checks(done, scope.level) if not scope.left_out(one)]
    checks = {one.id: one.arguments(done) for one in wanted}
    checks["systemd-healthy"] = units(scope.lock)  # a unit of ours that has failed is one, whichever run brought it
    checks["clock-sane"]["controller"] = now
    modules = kernels.modules() if any(one.kernels for one in wanted) else {}
    args = {"run_id": run_id, "seconds": scope.seconds, "checks": checks, "modules": modules}
    return {"verb": "verify", "args": args}


def read_answer(scope: Scope, data: Mapping[str, Any]) -> tuple[Check, ...]:
    """Turn a node's answer into checks; what was asked and not answered, or not understood, has failed.

    Names, titles, remedies and the mark ``simulated`` are ours; a node decides nothing but verdict, reason, evidence
    and which of our remedies is shown.

    Args:
        scope: What was asked for.
        data: ``{"checks": [...]}`` as the node sent it; may be anything.
    """
    sent = data.get("checks")
    answers = [a for a in sent if isinstance(a, dict)] if isinstance(sent, list) else []
    wanted = wanted_checks(scope.lock, scope.level)
    return tuple(_read_one(one, scope, [a for a in answers if a.get("id") == one.id]) for one in wanted)


def _read_one(wanted: Wanted, scope: Scope, answers: list[dict[str, Any]]) -> Check:
    environment = wanted.id.removeprefix("environment-") if wanted.role == ENVIRONMENTS else ""
    item = wanted.id if environment else ITEMS.get(wanted.role, wanted.role)
    simulated = any(choice.simulated and choice.item == item for choice in scope.lock.choices)
    ours = {"id": wanted.id, "title": wanted.title, "simulated": simulated}
    left_out = scope.left_out(wanted)
    if left_out:
        return Check(**ours, verdict=Verdict.SKIP, reason=left_out)
    if len(answers) != 1:
        return Check(
            **ours, verdict=Verdict.FAIL, reason=f"the node answered this check {len(answers)} times, not once"
        )
    try:
        remedy = remedies.words(answers[0].get("remedy"), scope.name, scope.lock, environment)
        check = Check.model_validate({**answers[0], **_measured(answers[0].get("data")), **ours, "remedy": remedy})
        check = check.model_copy(update={"data": _plain(check.data)})
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        return Check(**ours, verdict=Verdict.FAIL, reason="the node's answer cannot be read", evidence=said)
    if check.verdict is not Verdict.PASS and not check.reason:
        return check.model_copy(update={"reason": "the node gave no reason"})
    if check.verdict is Verdict.SKIP and not wanted.may_skip:
        return check.model_copy(update={"verdict": Verdict.FAIL, "reason": f"not done: {check.reason}"})
    return _no_better_than_measured(check)


def _measured(data: object) -> Variables:
    """The measures and series in what a node tells beside its words; what is expected of a number is ours to say."""
    told = data if isinstance(data, dict) else {}
    measures, series = (told.get(name) or () for name in ("measures", "series"))
    if isinstance(measures, list):
        measures = [_without(one, "expected", "source") if isinstance(one, dict) else one for one in measures]
    return {"measures": measures, "series": series}


def _without(told: Variables, *names: str) -> Variables:
    return {name: value for name, value in told.items() if name not in names}


def _no_better_than_measured(check: Check) -> Check:
    """A check is as bad as the worst of its measures, whatever the node made of them."""
    worst = min([check.verdict, *(m.verdict for m in check.measures)], key=WORST_FIRST.index)
    if worst is check.verdict:
        return check
    names = list(dict.fromkeys(m.name for m in check.measures if m.verdict is worst))
    reason = "; ".join(filter(None, (check.reason, f"measured {worst.value}: {', '.join(names[:5])}")))
    return check.model_copy(update={"verdict": worst, "reason": reason})


def _plain(data: Variables) -> Variables:
    """A few numbers and short words: all that our checks send, and all that is kept."""
    items = list(data.items())[:10]
    return {
        key[:40]: value
        for key, value in items
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) < 200)
    }


def login_check(error_words: str = "", remedy: str = "", seconds: float = 0.0) -> Check:
    """The check that the controller makes: a new connection by key.

    Args:
        error_words: Why it did not work; empty when it did.
        remedy: The next command when it did not.
        seconds: How long it took.
    """
    if error_words:
        return _login(Verdict.FAIL, "a new connection by key is refused", error_words, remedy)
    return _login(Verdict.PASS, seconds=seconds)


def other_login_check(login: str, remedy: str) -> Check:
    """The same when another key than the site's was taken: others who use this site may not get in."""
    return _login(Verdict.WARN, f"the site's key was not taken, but another was: {login}", remedy=remedy)


def no_login_check() -> Check:
    """The same on this machine itself."""
    return _login(Verdict.SKIP, "it is this machine itself, so nobody logs in")


def _login(verdict: Verdict, reason: str = "", evidence: str = "", remedy: str = "", seconds: float = 0.0) -> Check:
    return Check(
        id="ssh-login",
        title="A new SSH login works",
        verdict=verdict,
        reason=reason,
        evidence=evidence[:4000],
        remedy=remedy,
        seconds=seconds,
    )


def with_login(node: str, login: Check, checks: tuple[Check, ...]) -> NodeChecks:
    """All checks of a node, the login first."""
    return NodeChecks(node=node, checks=(login, *checks))
