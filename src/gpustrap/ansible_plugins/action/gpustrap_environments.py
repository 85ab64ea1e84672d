"""Asks the node which environments it lacks, and sends lock files only for those. The rest is the module's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

MODULE = "gpustrap_environments"
LOCK = "gpustrap.lock.yml"


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible is untyped
    """See the documentation of the module gpustrap_environments."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Bring the environments of this node to their locks."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        asked: dict[str, Any] = self._execute_module(MODULE, module_args=dict(self._task.args), task_vars=variables)
        if asked.get("failed") or not asked.get("needed"):
            return result | asked
        name, site = str(variables["inventory_hostname"]), site_of(variables)
        given = {one["name"]: one for one in self._task.args["environments"]}
        locks = {needed: lock_text(site, given[needed], name) for needed in asked["needed"]}
        if self._task.check_mode:
            return result | asked
        arguments = {**self._task.args, "locks": locks}
        built: dict[str, Any] = self._execute_module(MODULE, module_args=arguments, task_vars=variables)
        built.get("invocation", {}).get("module_args", {}).pop("locks", None)  # thousands of lines in every log
        return result | built


def site_of(variables: Mapping[str, Any]) -> Path:
    """Where the lock is that Ansible was given; its working directory where it was given none."""
    sources = map(Path, variables.get("ansible_inventory_sources") or ())
    return next((path.parent for path in sources if path.name == LOCK), Path.cwd())


def lock_text(site: Path, wanted: Mapping[str, Any], node: str) -> str:
    """The lock file of one environment, as it was when the node was planned.

    Args:
        site: Directory it is in.
        wanted: The environment, as the lock has it.
        node: Its name, for the next command.

    Raises:
        AnsibleActionFail: It is not there, or is another.
    """
    file, again = PurePosixPath(wanted["lock"]), f"gpustrap plan {node}"
    if not file.parts or file.is_absolute() or ".." in file.parts:
        raise AnsibleActionFail(f"environment {wanted['name']} has no lock file\nNext: {again}")
    try:
        text = (site / file).read_bytes()
    except OSError as error:
        raise AnsibleActionFail(
            f"environment {wanted['name']}: {site / file} cannot be read: {error.strerror}; it belongs into git"
            f"\nNext: git checkout {file}, or {again}"
        ) from None
    digest = hashlib.sha256(text).hexdigest()
    if digest != wanted["digest"]:
        raise AnsibleActionFail(
            f"environment {wanted['name']}: {site / file} was changed since the plan: its SHA-256 is {digest}, "
            f"{LOCK} has {wanted['digest']}\nNext: git checkout {file}, or {again}"
        )
    return text.decode("utf-8")
