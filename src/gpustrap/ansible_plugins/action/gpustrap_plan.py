"""Plans one node as ``gpustrap plan`` does. The node is asked by gpustrap_facts; everything else runs here."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible loads this file once and forks a worker for every node: what is read here is read once.
try:
    from gpustrap.catalog.loader import load_catalog
    from gpustrap.commands import plain_ansible
    from gpustrap.commands.controller import controller_problem
    from gpustrap.commands.inspect import check
    from gpustrap.commands.plan import decide
    from gpustrap.errors import GpustrapError
    from gpustrap.model.facts import Facts
    from gpustrap.model.request import Request
    from gpustrap.model.site import Site
    from gpustrap.site.inventory import ROLE_PREFIXES, WISHES
    from gpustrap.site.inventory_child import bare, read_variables
    from gpustrap.site.wrong import without_prefix
except ImportError as error:
    MISSING = str(error)
else:
    MISSING = ""
    load_catalog()


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible is untyped
    """See the documentation of the module gpustrap_plan."""

    TRANSFERS_FILES = False

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan the node of this task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec={})
        if MISSING:
            raise AnsibleActionFail(_not_installed())
        variables = task_vars or {}
        name = str(variables["inventory_hostname"])
        try:
            request = self._request(name, variables)
            facts = self._facts(name, request, variables)
        except GpustrapError as error:
            raise AnsibleActionFail(plain_ansible.in_words(error.problems)) from None
        plan = plain_ansible.with_lock_files(decide(name, facts, request, load_catalog()))
        unread = bare(variables["hostvars"].raw_get(name), WISHES)
        odd = [without_prefix(variable, where, Site(Path.cwd())) for variable, where in unread.items()]
        for finding in (*odd, *plan.findings):
            say = self._display.warning if finding.severity == "warning" else self._display.v
            say(plain_ansible.finding_in_words(name, finding))
        data = plain_ansible.as_data(plan)
        if plan.problems:
            return result | data | {"failed": True, "msg": plain_ansible.in_words(plan.problems)}
        return result | data | {"variables": plain_ansible.variables(plan), "changed": False}

    def _request(self, name: str, variables: dict[str, Any]) -> Request:
        failures: list[dict[str, str]] = []
        raw = plain_ansible.relevant(variables, variables["hostvars"].raw_get(name))
        values, origins = read_variables(name, raw, self._templar.template, ROLE_PREFIXES, failures)
        return plain_ansible.wish(name, values, origins=origins, failures=failures, root=Path.cwd())

    def _facts(self, name: str, request: Request, variables: dict[str, Any]) -> Facts:
        packages = plain_ansible.questions(request)
        sent = time.time()
        answer = self._execute_module("gpustrap_facts", module_args={"packages": packages}, task_vars=variables)
        if answer.get("failed"):
            raise AnsibleActionFail(answer.get("msg", ""), result=answer)
        facts = check(name, answer["facts"], (sent, time.time()))
        if isinstance(facts, GpustrapError):
            raise facts
        if trouble := controller_problem(name, facts):
            raise GpustrapError(trouble)
        return facts


def _not_installed() -> str:
    checkout = Path(__file__).resolve().parents[4]
    what = checkout if (checkout / "pyproject.toml").is_file() else "gpustrap"
    return (
        f"gpustrap_plan: gpustrap cannot be imported by the Python that runs Ansible, {sys.executable}: {MISSING}\n"
        f"Next: {sys.executable} -m pip install {what}"
    )
