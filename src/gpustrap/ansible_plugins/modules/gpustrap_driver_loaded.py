"""Ansible module: is the driver loaded that programs on the node expect? Reads only."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_loaded import loaded
from ansible.module_utils.gpustrap_node.host import Host

DOCUMENTATION = r"""
module: gpustrap_driver_loaded
short_description: Whether NVIDIA's driver runs in the version that is wanted
description:
  - For what only works with the driver that is loaded, such as the fabric manager. Until the reboot that a new driver
    waits for, it must be left alone; a warning says so.
options:
  version: {type: str, default: "", description: The version wanted; empty takes that of the driver's libraries.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_driver_loaded:
    version: 595.91.07
  register: __driver
"""
RETURN = r"""
runs: {type: bool, returned: success, description: The loaded driver is the one that is wanted.}
version: {type: str, returned: success, description: Its version; empty where it is another one or none.}
"""


def main() -> None:
    """Answer one task."""
    module = AnsibleModule(argument_spec={"version": {"type": "str", "default": ""}}, supports_check_mode=True)
    version, why = loaded(Host(), module.params["version"])
    if why:
        module.warn("what needs the driver waits for a reboot: " + why)
    module.exit_json(changed=False, runs=bool(version), version=version)


if __name__ == "__main__":
    main()
