"""Ansible module: a unit is enabled and runs, unless systemd's conditions hold it back. See DOCUMENTATION."""

from __future__ import annotations

from typing import Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_host import HostError, run_unit

DOCUMENTATION = r"""
module: gpustrap_unit
short_description: Has a unit enabled and running, unless its own conditions hold it back
description:
  - For units that systemd skips on some machines, such as time sync in a container (C(ConditionVirtualization)).
    There C(ansible.builtin.systemd_service) reports a change on every run and never says why nothing runs.
  - A unit that is held back is enabled, not failed, and named in a warning with its conditions.
author: gpustrap
options:
  name:
    description: The unit.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: service | Ensure the clock is kept in sync
  gpustrap_unit:
    name: systemd-timesyncd
"""

RETURN = r"""
held_back:
  description: The unit's conditions, when one of them keeps it from running here.
  returned: always
  type: list
claims:
  description: What the role manages from now on.
  returned: always
  type: list
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"name": {"type": "str", "required": True}}, supports_check_mode=True)

    def systemctl(arguments: Sequence[str]) -> tuple[int, str]:
        code, output, errors = module.run_command(["systemctl", "--no-pager", *arguments])
        return code, output + errors

    try:
        result = run_unit(module.params["name"], systemctl, module.check_mode)
    except HostError as error:
        module.fail_json(msg=str(error))
    if result["held_back"]:
        module.warn(
            "%s is enabled, but systemd does not run it on this node: %s"
            % (module.params["name"], ", ".join(result["held_back"]))
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
