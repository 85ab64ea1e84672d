#!/usr/bin/python
"""Ansible module: the node's part of gpustrap_reboot. See DOCUMENTATION."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_node import reboots
from ansible.module_utils.gpustrap_node.facts import collect_boot
from ansible.module_utils.gpustrap_node.host import Host, NodeError

DOCUMENTATION = r"""
module: gpustrap_boot
short_description: Read what the next boot will load, and begin a reboot
description:
  - The node's part of M(gpustrap_reboot), which decides; use that one.
  - A reboot is noted in C(/var/lib/gpustrap/reboots.json) before it begins. It is refused where the node has booted
    since the same target was noted, as that boot did not bring what it was for.
options:
  action:
    description: C(read) only reads; C(begin) notes the reboot and starts it; C(forget) removes the note of a stage.
    type: str
    choices: [read, begin, forget]
    default: read
  stage:
    description: What the reboot is for.
    type: str
    choices: [kernel, driver, removal]
  target:
    description: What it is to bring; the same is not tried twice.
    type: str
  why:
    description: For the node's journal.
    type: str
    default: ""
author: [gpustrap]
attributes:
  check_mode:
    support: full
    description: Only reads.
"""

EXAMPLES = r"""
- name: Read what the next boot will load
  gpustrap_boot:
  register: __boot
"""

RETURN = r"""
facts:
  description: Kernels, modules, libraries, Secure Boot and the boot id, in the shape of M(gpustrap_facts).
  returned: with C(read)
  type: dict
noted:
  description: The stages a reboot was begun for and whose end nobody has seen yet.
  returned: with C(read)
  type: list
"""


def main() -> None:
    """Answer one task."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "choices": ["read", "begin", "forget"], "default": "read"},
            "stage": {"type": "str", "choices": ["kernel", "driver", "removal"]},
            "target": {"type": "str"},
            "why": {"type": "str", "default": ""},
        },
        required_if=[("action", "begin", ("stage", "target")), ("action", "forget", ("stage",))],
        supports_check_mode=True,
    )
    host, given = Host(), module.params
    try:
        if given["action"] == "read" or module.check_mode:
            module.exit_json(changed=False, facts=collect_boot(host), noted=sorted(reboots.history(host)))
        if given["action"] == "forget":
            module.exit_json(changed=reboots.forget(host, given["stage"]))
        reboots.begin(host, given["stage"], given["target"], given["why"])
    except NodeError as error:
        module.fail_json(msg=str(error), code=error.code)
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
