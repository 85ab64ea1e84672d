"""Writes down which role claims which resource: the names of things, never their content."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.executor.task_result import CallbackTaskResult
from ansible.playbook.play import Play
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar

DOCUMENTATION = """
name: gpustrap_claims
type: aggregate
short_description: Records which role claims which resource of a node
description:
  - Appends one JSON object a line to the file named by the environment variable C(GPUSTRAP_CLAIMS);
    without that variable it does nothing.
  - Reads a whitelist of arguments (path, dest, name, state) and nothing else of a task.
  - A module may name what it manages itself, in C(claims) of its result.
  - A task whose module says nothing about it (C(command), C(shell), C(raw)), or that hides its result (C(no_log)),
    names what it manages in the task variable C(__claims), a list of C({kind, name}).
  - Never records what was skipped, failed, or only would have been done (check mode).
requirements: []
options: {}
"""

# module -> the kind of resource its arguments name
PACKAGES = {"apt", "dnf", "dnf5", "package", "dpkg_selections"}
UNITS = {"service", "systemd", "systemd_service"}
FILES = {"assemble", "blockinfile", "copy", "deb822_repository", "file", "get_url", "lineinfile", "replace", "template"}
FILE_STATES = {"directory": "directory", "link": "link", "hard": "file", "touch": "file", "file": "file"}
UNIT_SUFFIXES = (
    ".service",
    ".socket",
    ".timer",
    ".path",
    ".target",
    ".mount",
    ".automount",
    ".slice",
    ".swap",
    ".device",
    ".scope",
)
MAX_NAME = 4096
Named = tuple[str, str]  # kind, name


def claims_of(action: str, arguments: Mapping[str, Any], result: Mapping[str, Any]) -> list[Named]:
    """What a task that ended well claims.

    Args:
        action: The module, with or without its collection.
        arguments: The arguments the module ran with.
        result: What it returned.

    Returns:
        A list of ``(kind, name)``. What a role removes is its own, too: it must not come back.
    """
    if isinstance(result.get("claims"), list):
        return stated(result["claims"])
    module = action.rpartition(".")[2]
    if module in PACKAGES:
        return [("package", name) for name in _packages(arguments)]
    if module in UNITS:
        name = arguments.get("name")
        return [("unit", _unit(name))] if name else []
    if module in FILES:
        return _files(module, arguments, result)
    return []


def stated(claims: Sequence[Any]) -> list[Named]:
    """The claims a module or a task names itself; what is not of the right shape is an error, not ignored.

    Raises:
        ValueError: A claim without kind or name.
    """
    found = []
    for claim in claims:
        if not isinstance(claim, dict) or not claim.get("kind") or not claim.get("name"):
            raise ValueError(f"a claim needs kind and name, got {claim!r}")
        found.append((str(claim["kind"]), str(claim["name"])))
    return found


def _packages(arguments: Mapping[str, Any]) -> list[str]:
    names = arguments.get("name") or arguments.get("package") or arguments.get("pkg") or []
    if isinstance(names, str):
        names = names.split(",")
    # name=version, name/release and name:architecture are ways to ask; the package is the name.
    plain = (str(n).strip().partition("=")[0].partition("/")[0].partition(":")[0] for n in names)
    return [n for n in plain if n and not set(n) & set("*?[")]


def _unit(name: str) -> str:
    return name if name.endswith(UNIT_SUFFIXES) else name + ".service"


def _files(module: str, arguments: Mapping[str, Any], result: Mapping[str, Any]) -> list[Named]:
    path = result.get("dest") or result.get("path") or arguments.get("dest") or arguments.get("path")
    if not path:
        return []
    kind = "file"
    if module == "file":
        kind = FILE_STATES.get(str(result.get("state") or arguments.get("state")), "file")
    elif result.get("state") == "directory":
        kind = "directory"
    found = [(kind, path)]
    if module == "deb822_repository" and result.get("key_filename"):
        found.append(("file", result["key_filename"]))
    return found


def append(path: str, text: str) -> None:
    """Add lines to a file that others may be adding to.

    One write each and no buffer of Python's: Ansible forks workers at any time, and what lies in a buffer then may be
    written by the worker, too, into the middle of other lines.
    """
    rest = text.encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible is untyped
    """The callback itself: finds out node, role and claims of each task that ended well."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpustrap_claims"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._path = os.environ.get("GPUSTRAP_CLAIMS", "")
        self._play: Any = None
        if not self._path:
            self.disabled = True

    def v2_playbook_on_play_start(self, play: Play) -> None:
        """Remember the play: its variables are needed to read ``__claims``."""
        self._play = play

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """A task without a loop ended well; those of a loop come item by item."""
        if "results" not in result.result or (result.task.loop is None and not result.task.loop_with):
            self._record(result)

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        """One item of a loop ended well."""
        self._record(result)

    def _record(self, result: CallbackTaskResult) -> None:
        outcome = result.result
        if result.task.check_mode or outcome.get("skipped") or outcome.get("failed"):
            return
        given = result.task.vars.get("__claims")
        if given is not None:
            claims = stated(self._templated(given, result))
        else:
            arguments = (outcome.get("invocation") or {}).get("module_args") or {}
            claims = claims_of(str(result.task.action), arguments, outcome)
        role = result.task._role  # noqa: SLF001 - Ansible has no public way from a task to its role
        role_name = role.get_name().rpartition(".")[2] if role else ""
        lines = [
            json.dumps(
                {
                    "node": result.host.get_name(),
                    "kind": kind,
                    "name": name[:MAX_NAME],
                    "role": role_name,
                }
            )
            for kind, name in claims
        ]
        if lines:
            append(self._path, "".join(line + "\n" for line in lines))

    def _templated(self, given: Any, result: CallbackTaskResult) -> Any:  # noqa: ANN401 - whatever the task wrote
        manager = self._play.get_variable_manager()
        variables = manager.get_vars(play=self._play, host=result.host, task=result.task)
        loop_variable = result.result.get("ansible_loop_var")
        if loop_variable:
            variables[loop_variable] = result.result.get(loop_variable)
        return Templar(loader=self._play.get_loader(), variables=variables).template(given)
