#!/usr/bin/python
"""Ansible module around the node program's facts."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_node.main import main as ask

DOCUMENTATION = r"""
module: gpustrap_facts
short_description: Read what a node is
description:
  - Reads operating system, kernels, hardware, package manager health, existing installations and more.
  - The same program answers C(gpustrap inspect). It changes nothing.
options:
  packages:
    description: Packages whose versions are wanted; C({kernel}) in a name means the running kernel.
    type: list
    elements: str
    default: []
author: [gpustrap]
attributes:
  check_mode:
    support: full
    description: Reads only.
"""

EXAMPLES = r"""
- name: Read what the node is
  gpustrap_facts:
    packages: [docker.io]
  register: __node
"""

RETURN = r"""
facts:
  description: The facts, in the shape that C(gpustrap inspect --format json) shows.
  returned: success
  type: dict
"""


def main() -> None:
    """Answer one task."""
    module = AnsibleModule(
        argument_spec={"packages": {"type": "list", "elements": "str", "default": []}}, supports_check_mode=True
    )
    answer = ask({"verb": "facts", "args": {"packages": module.params["packages"]}})
    if answer["ok"]:
        module.exit_json(changed=False, facts=answer["data"])
    module.fail_json(msg="gpustrap_facts: %s" % answer["error"]["message"], code=answer["error"]["code"])


if __name__ == "__main__":
    main()
