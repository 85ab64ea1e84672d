"""Ansible module: the node's time zone. See DOCUMENTATION."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_host import HostError, set_timezone

DOCUMENTATION = r"""
module: gpustrap_timezone
short_description: Sets the time zone
description:
  - Points C(/etc/localtime) at the zone and keeps C(/etc/timezone) in step where there is one. Needs no D-Bus.
author: gpustrap
options:
  name:
    description: The zone, e.g. Europe/Berlin.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: configure | Ensure the time zone is set
  gpustrap_timezone:
    name: Europe/Berlin
"""

RETURN = r"""
claims:
  description: What the role manages from now on.
  returned: always
  type: list
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"name": {"type": "str", "required": True}}, supports_check_mode=True)
    try:
        result = set_timezone(module.params["name"], module.check_mode)
    except (HostError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
