"""The plan of facts that are already there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

DOCUMENTATION = r"""
name: gpustrap_plan
short_description: Decide what a node with these facts would get
description:
  - The same decision as C(gpustrap plan) and M(gpustrap_plan), of facts that were read before. Asks no node.
  - Refusals do not fail; they are in RV(problems).
  - gpustrap must be installed for the Python that runs Ansible.
positional: request
options:
  _input:
    description: Facts, as M(gpustrap_facts) returns them and C(gpustrap inspect --format json) shows them.
    type: dict
    required: true
  request:
    description: What is wanted, C(gpustrap_*) variables and no others.
    type: dict
    default: {}
  name:
    description: How refusals call the node.
    type: str
    default: node
  offline:
    description: Versions that only the node's package manager knows stay open, as with C(gpustrap plan --from-facts).
      Facts that were read without the names of packages have none.
    type: bool
    default: false
seealso:
  - plugin: gpustrap_plan
    plugin_type: module
"""

EXAMPLES = r"""
- name: Show what a node would get without docker, by the facts that gpustrap inspect read
  ansible.builtin.debug:
    msg: "{{ __facts | gpustrap_plan({'gpustrap_docker': false}, name='n1', offline=true) }}"
  vars:
    __facts: "{{ lookup('ansible.builtin.file', '.gpustrap/nodes/n1/facts.json') | from_json }}"
"""

RETURN = r"""
_value:
  description: RV(roles), RV(pending), RV(choices), RV(problems) and RV(findings), as M(gpustrap_plan) returns them.
  type: dict
"""


def gpustrap_plan(
    facts: object, request: Mapping[str, Any] | None = None, name: str = "node", *, offline: bool = False
) -> dict[str, Any]:
    """See DOCUMENTATION."""
    try:
        # Only here: Ansible loads this file whenever it looks for any filter.
        from gpustrap.commands.plain_ansible import plan_recorded  # noqa: PLC0415
    except ImportError as error:
        raise AnsibleFilterError(_not_installed(error)) from error
    if not isinstance(request or {}, Mapping):
        raise AnsibleFilterError("gpustrap_plan: request is a dictionary of gpustrap_* variables")
    return plan_recorded(name, facts, request or {}, offline=offline, root=Path.cwd())


def _not_installed(error: ImportError) -> str:
    checkout = Path(__file__).resolve().parents[4]
    what = checkout if (checkout / "pyproject.toml").is_file() else "gpustrap"
    return (
        f"gpustrap_plan: gpustrap cannot be imported by the Python that runs Ansible, {sys.executable}: {error}\n"
        f"Next: {sys.executable} -m pip install {what}"
    )


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters of this file."""
        return {"gpustrap_plan": gpustrap_plan}
