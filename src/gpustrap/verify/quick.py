"""Level quick: what is asked of a node that has just been applied, and how its answers become checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpustrap.content import PACKAGE
from gpustrap.model.check import WORST_FIRST, Check, NodeChecks, Verdict
from gpustrap.model.environment import PYTHON, Environment
from gpustrap.model.lock import NodeLock
from gpustrap.verify import remedies

NODE_PACKAGE: Path = PACKAGE / "verify" / "gpustrap_verify"
ENTRY = "gpustrap_verify.main"
SECONDS = 600  # for all checks of a node; a first environment from a slow mirror takes minutes
ENVIRONMENT_SECONDS = 300  # more for each environment: frameworks start slowly, and are used on every GPU
ENVIRONMENTS = "ml_environments"
SIZE, SIMULATED_SIZE = 1024, 32  # rows and columns of matrices; stand-ins of frameworks reckon in Python
LOGIN_SECONDS = 60  # connecting and becoming root, at most; a clock that is ahead is known no better than this

# What the lock's choices call that of a role, where it is not the role's name; an environment's is its check's id.
ITEMS = {"nvidia_driver": "driver"}

Variables = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One check of the node program.

    Attributes:
        id: Its name there and here.
        title: For people.
        role: The role whose work it proves; left out (skip) when the lock does not give the node that role.
            Empty: asked of every node.
        arguments: From the roles' variables to the check's arguments.
    """

    id: str
    title: str
    role: str
    arguments: Callable[[NodeLock], Variables]


def _role(lock: NodeLock, role: str) -> Variables:
    """A role's variables without their prefix."""
    return {name.removeprefix(f"{role}_"): value for name, value in lock.roles.get(role, {}).items()}


def _units(lock: NodeLock) -> Variables:
    units = ["ssh.service", "sshd.service"]
    if "docker" in lock.roles:
        units += ["docker.service", "docker.socket", "containerd.service"]
    return {"units": [*units, *filter(None, [_time_service(lock)])]}


def _time_service(lock: NodeLock) -> str:
    server = _role(lock, "ubuntu_server")
    if not server.get("time_sync"):
        return ""
    service = str(server.get("time_sync_service") or "")
    return service if not service or "." in service else f"{service}.service"


def _clock(lock: NodeLock) -> Variables:
    return {"ahead": LOGIN_SECONDS, "service": _time_service(lock)}  # the controller's time is added when it is sent


def _disk(lock: NodeLock) -> Variables:
    paths = ["/", "/boot", "/boot/efi", "/var", "/tmp", "/var/tmp"]  # noqa: S108 - looked at, not written to
    if "docker" in lock.roles:
        daemon = _role(lock, "docker").get("daemon") or {}
        paths.append(str(daemon.get("data-root") or "/var/lib/docker"))
    if "conda" in lock.roles:
        paths.append(str(_role(lock, "conda")["prefix"]))
    return {"paths": paths}


def _conda_environment(lock: NodeLock) -> Variables:
    conda = _role(lock, "conda")
    return {
        "prefix": conda["prefix"],
        "channels": list(conda["channels"]),
        "packages": ["python"],
        "program": ["bin/python", "-c", "print('TOKEN')"],
        "proxy": _proxy(conda.get("proxy") or {}),
    }


def _proxy(proxy: Variables) -> dict[str, str]:
    no_proxy = proxy.get("no_proxy") or ()
    values = {
        "http_proxy": proxy.get("http"),
        "https_proxy": proxy.get("https"),
        "no_proxy": no_proxy if isinstance(no_proxy, str) else ",".join(no_proxy),
    }
    return {name: str(value) for name, value in values.items() if value}


WANTED: tuple[Wanted, ...] = (
    Wanted("sudo-works", "The login becomes root", "", lambda _lock: {}),
    Wanted("systemd-healthy", "No unit has failed", "", _units),
    Wanted("clock-sane", "The clock is right", "", _clock),
    Wanted("disk-has-room", "Filesystems have room", "", _disk),
    Wanted(
        "driver-loaded",
        "The locked driver is loaded",
        "nvidia_driver",
        lambda lock: {"version": str(_role(lock, "nvidia_driver").get("version") or "")},
    ),
    Wanted(
        "docker-daemon",
        "The docker daemon runs, in the locked version",
        "docker",
        lambda lock: {"packages": _role(lock, "docker").get("packages") or []},
    ),
    Wanted(
        "docker-config",
        "Docker is configured as locked",
        "docker",
        lambda lock: {"daemon": _role(lock, "docker").get("daemon") or {}},
    ),
    Wanted("docker-runs-a-container", "Docker runs a container", "docker", lambda _lock: {}),
    Wanted(
        "conda-version",
        "Conda is the locked version",
        "conda",
        lambda lock: {key: _role(lock, "conda")[key] for key in ("prefix", "version")},
    ),
    Wanted("conda-creates-an-environment", "Conda makes an environment", "conda", _conda_environment),
)


def _environments(lock: NodeLock) -> tuple[Environment, ...]:
    return tuple(Environment.model_validate(found) for found in _role(lock, ENVIRONMENTS).get("environments") or ())


def _environment(lock: NodeLock, wanted: Environment) -> Variables:
    role = _role(lock, ENVIRONMENTS)
    return {
        "name": wanted.name,
        "prefix": role["prefix"],
        "digest": wanted.digest,
        "framework": wanted.framework,
        "modules": list(wanted.modules),
        "compute": [] if wanted.framework == PYTHON else list(wanted.compute),
        "gpus": list(wanted.gpus),
        "users": wanted.users,
        "gpu_group": str(_role(lock, "nvidia_driver").get("group") or ""),
        "conda": wanted.engine == "conda",
        "size": SIMULATED_SIZE if lock.simulated else SIZE,
        "thorough": True,
    }


def _title(wanted: Environment) -> str:
    if wanted.framework == PYTHON:
        return f"Environment {wanted.name} is complete"
    if not wanted.compute:
        return f"Environment {wanted.name} works on the CPU"
    return f"Environment {wanted.name} uses {'its' if wanted.gpus else 'all'} GPUs"


def wanted_checks(lock: NodeLock) -> tuple[Wanted, ...]:
    """Every check of a node: those of all nodes, and one for each environment that its lock has."""
    found = (
        Wanted(f"environment-{one.name}", _title(one), ENVIRONMENTS, partial(_environment, wanted=one))
        for one in _environments(lock)
    )
    return (*WANTED, *found)


def seconds(lock: NodeLock) -> int:
    """How long all checks of a node may take."""
    return SECONDS + ENVIRONMENT_SECONDS * len(_environments(lock))


@dataclass(frozen=True, slots=True)
class Scope:
    """What is checked of one node.

    Attributes:
        name: Inventory name.
        lock: The node's entry of the lock.
        roles: Only the work of these roles, and what holds for every node; None for all of the lock.
    """

    name: str
    lock: NodeLock
    roles: Collection[str] | None = None

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
    checks = {w.id: w.arguments(done) for w in wanted_checks(done) if not scope.left_out(w)}
    checks["systemd-healthy"] = _units(scope.lock)  # a unit of ours that has failed is one, whichever run brought it
    checks["clock-sane"]["controller"] = now
    return {"verb": "verify", "args": {"run_id": run_id, "seconds": seconds(scope.lock), "checks": checks}}


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
    wanted = wanted_checks(scope.lock)
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
    if check.verdict is Verdict.SKIP:  # a node skips nothing that we asked for
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
