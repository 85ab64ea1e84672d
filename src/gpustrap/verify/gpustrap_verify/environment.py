"""Checks of an environment for a framework: complete, unchanged, and really used by every GPU that it is for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustrap_node import environments
from gpustrap_node.host import Host

from . import disturbances, gpu_groups, smoke_files, symptoms
from .conda import PLACE, PREFIX, remove_leftovers
from .gpu_groups import Group, GroupError
from .node import ENVIRONMENT, STOPPED, Finding, Node, Result, failed, passed, warned
from .ordinary_user import OrdinaryUser, ordinary_user
from .remedies import Remedy
from .smoke.common import FLAGS, START, STEP

SCRIPTS = {"pytorch": "pytorch", "vllm": "pytorch", "tensorflow": "tensorflow", "jax": "jax", "python": "modules"}
SECONDS = 240  # for one run of a script; CUDA starts within a minute even on eight GPUs without persistence mode
TOGETHER_SECONDS = 120
SIGNALS = {
    4: "the processor lacks instructions that this build uses",
    7: "there is no room for shared memory, or a disk fails",
    9: "it was killed, mostly because the machine's memory was used up",
    11: "it crashed",
}


@dataclass(frozen=True)
class _Run:
    """How one run of a script ended.

    Attributes:
        answer: What it answered; empty when it did not.
        result: How its process ended.
    """

    answer: dict[str, Any]
    result: Result

    @property
    def ok(self) -> bool:
        return self.answer.get("ok") is True

    @property
    def at(self) -> str:
        """The last step that it began."""
        steps = [line[len(STEP) :] for line in self.result.err.splitlines() if line.startswith(STEP)]
        return steps[-1] if steps else "its start"

    @property
    def log(self) -> str:
        """What the framework said."""
        return "\n".join(line for line in self.result.err.splitlines() if not line.startswith(STEP))


def check(node: Node, args: dict[str, Any]) -> Finding:
    """One environment of the lock.

    Args:
        node: The node.
        args: ``name``, ``prefix``, ``digest`` of its lock, ``framework``, ``modules`` that must import; ``compute``: of
            the GPUs that it is for, none where it computes on the processor; ``gpus``: their addresses, none for all;
            ``users``: who may use it; ``gpu_group``: who may use GPUs, empty for everybody; ``conda``: its Python is
            conda's; ``size`` of matrices; ``thorough``: train, and use all GPUs together.
    """
    host = Host(str(node.root))
    path = environments.current_path(host, args["prefix"], args["name"])
    why = _not_as_built(host, path, args["digest"][: environments.ID_LENGTH])
    if why or path is None:
        return failed(why, remedy=Remedy.APPLY)
    user = ordinary_user(node, [args["users"], args["gpu_group"]])
    try:
        groups = gpu_groups.find(node, host, args["gpus"]) if args["compute"] else (Group((), ()),)
        with _place(node, user) as place:
            return _try(_Trial(node, host, args, path, user, place), groups)
    except GroupError as error:
        return failed(str(error), error.evidence, error.remedy)
    except OSError as error:
        return failed(f"no temporary directory can be made in {PLACE}", str(error), Remedy.MAKE_ROOM)


def _not_as_built(host: Host, path: str | None, lock: str) -> str:
    """What is wrong with the environment before anything of it runs; empty if nothing is."""
    if path is None:
        return "it is not there"
    marker = environments.read_marker(host, path)
    if not marker:
        return f"it was never complete: {path}"
    if marker.get("lock") != lock:
        return f"it was built from another lock ({marker.get('lock')}; {lock} is wanted)"
    changes = environments.differences(marker, environments.parts(host, path))
    if changes:
        more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
        return f"somebody changed it by hand: {', '.join(changes[:5])}{more}"
    return ""


@dataclass(frozen=True)
class _Trial:
    """The means to run a script in an environment."""

    node: Node
    host: Host
    args: dict[str, Any]
    path: str
    user: OrdinaryUser
    place: Path

    def run(self, group: Group, variables: dict[str, str] | None = None) -> _Run:
        """Run the framework's script on a group of GPUs; with further variables only what is quick."""
        args = self.args
        wanted = {
            "device": "gpu" if args["compute"] else "cpu",
            "gpus": list(group.names),
            "size": args["size"] if variables is None else 64,
            "thorough": args["thorough"] and variables is None,
            "seconds": TOGETHER_SECONDS,
            "place": str(self.place / "home"),
            "modules": args["modules"],
            "vllm": args["framework"] == "vllm",
        }
        script = "smoke." + SCRIPTS[args["framework"]]
        python = [f"{self.path}/bin/python", *FLAGS, "-c", START, str(self.place), script, json.dumps(wanted)]
        home = str(self.place / "home")
        environment = {**ENVIRONMENT, "HOME": home, "TMPDIR": home, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        if group.visible:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(group.visible)
        environment.update(variables or {})
        result = self.node.run(*self.user.argv, *python, timeout=SECONDS, environment=environment)
        return _Run(_answer(result.out), result)

    def disturbed(self, group: Group) -> Iterator[str]:
        """What somebody's own settings do to it, tried out."""
        for disturbance in disturbances.find(self.host, self.args["modules"], self.path, self.args["conda"]):
            if not disturbance.variables:
                yield disturbance.said
                continue
            run = self.run(group, dict(disturbance.variables))
            if not run.ok:
                yield f"{disturbance.said}, and it fails: {run.answer.get('said') or run.at}"
            elif run.answer.get("elsewhere"):
                yield f"{disturbance.said}, and takes {', '.join(run.answer['elsewhere'][:3])}"


def _try(trial: _Trial, groups: Sequence[Group]) -> Finding:
    """Run the script on every group, then with what disturbs it."""
    version = ""
    for group in groups:
        run = trial.run(group)
        if not run.ok:
            return _failure(run)
        if run.answer.get("elsewhere"):
            return _foreign(run.answer["elsewhere"])
        version = str(run.answer.get("version", ""))
    disturbed = list(trial.disturbed(groups[0]))
    if disturbed:
        return warned("it works, but not for everybody: " + "; ".join(disturbed), remedy=Remedy.OWN_LIBRARIES)
    return passed(_praise(trial.args, groups, trial.user), version=version, gpus=_count(groups))


def _answer(out: str) -> dict[str, Any]:
    try:
        found = json.loads(out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def _place(node: Node, user: OrdinaryUser) -> Iterator[Path]:
    """A directory with the scripts, and in it a home for whoever runs them; gone afterwards."""
    remove_leftovers(node)
    place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=str(node.path(PLACE))))
    try:
        smoke_files.write(place)
        place.chmod(0o755)
        (place / "home").mkdir(mode=0o700)
        if user.argv:
            os.chown(str(place / "home"), user.uid, user.gid)
        yield place
    finally:
        shutil.rmtree(str(place), ignore_errors=True)


def _failure(run: _Run) -> Finding:
    """Why a script did not end well."""
    said, code = str(run.answer.get("said", "")), str(run.answer.get("code", ""))
    words = "\n".join(part for part in (said, run.log[-3000:], run.result.problem) if part)
    if not run.answer and run.result.rc is None and STOPPED not in run.result.problem:
        return failed(run.result.problem, words, Remedy.APPLY)
    if not run.answer and run.result.rc is None:
        together = run.at.startswith("all devices together")
        return failed(f"it hangs at: {run.at}", words, Remedy.NCCL if together else Remedy.KERNEL_LOG)
    signal = -(run.result.rc or 0) if (run.result.rc or 0) < 0 else (run.result.rc or 0) - 128
    if not run.answer and signal in SIGNALS:
        return failed(f"{SIGNALS[signal]} (signal {signal}), at: {run.at}", words, Remedy.KERNEL_LOG)
    symptom = symptoms.diagnose(code, said, run.log)
    if symptom is None:
        return failed(f"it fails at: {run.answer.get('at') or run.at}", words, Remedy.ENV_SHELL)
    reason = symptoms.cause(symptom, words)
    return failed(f"{reason} (at: {run.answer.get('at') or run.at})", words, symptom.remedy)


def _foreign(paths: list[str]) -> Finding:
    reason = "libraries from outside the environment won over its own"
    return warned(reason, "\n".join(map(str, paths)), Remedy.OWN_LIBRARIES)


def _count(groups: Sequence[Group]) -> int:
    return sum(len(group.names) for group in groups)


def _praise(args: dict[str, Any], groups: Sequence[Group], user: OrdinaryUser) -> str:
    """What was shown; on the processor it says so."""
    who = "" if user.argv else ", as root"
    if args["framework"] == "python":
        return f"its modules import{who}" if args["modules"] else "it is complete"
    if not args["compute"]:
        return f"on the CPU, as planned for this node{who}"
    count = _count(groups)
    together = " and on all together" if args["thorough"] and any(len(group.names) > 1 for group in groups) else ""
    return f"on {'its GPU' if count == 1 else f'each of {count} GPUs'}{together}{who}"
