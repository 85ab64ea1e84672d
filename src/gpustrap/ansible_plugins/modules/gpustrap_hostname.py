"""Ansible module: the node has its name and resolves it. See DOCUMENTATION."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_host import name_node

DOCUMENTATION = r"""
module: gpustrap_hostname
short_description: Sets the host name and makes it resolve
description:
  - Sets the host name, running and in C(/etc/hostname), also where that file is a mount (containers).
  - Adds one marked line to C(/etc/hosts) when no line names the node; without it every sudo waits for DNS.
author: gpustrap
options:
  name:
    description: The name. Empty keeps the node's own.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: configure | Ensure the node has its name and resolves it
  gpustrap_hostname:
    name: gpu01
"""

RETURN = r"""
claims:
  description: What the role manages from now on.
  returned: always
  type: list
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"name": {"type": "str", "default": ""}}, supports_check_mode=True)
    try:
        result = name_node(module.params["name"], module.check_mode)
    except OSError as error:
        module.fail_json(msg="the host name cannot be set: %s" % error)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
