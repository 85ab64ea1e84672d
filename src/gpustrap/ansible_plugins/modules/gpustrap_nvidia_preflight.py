"""Ansible module: may NVIDIA's driver be installed or replaced here? Reads only; names every obstacle at once."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_driver_preflight import problems, problems_of_rpms
from ansible.module_utils.gpustrap_node import dpkg, rpm
from ansible.module_utils.gpustrap_node.driver_set import Wanted
from ansible.module_utils.gpustrap_node.host import Host

DOCUMENTATION = r"""
module: gpustrap_nvidia_preflight
short_description: Refuse what would mix two drivers, or break what runs on the GPUs
description:
  - Looks for what NVIDIA's .run installer or somebody's hands left, for modules that DKMS builds of no package, and, if
    the driver would be replaced, for processes that have the GPUs open. Changes nothing, also outside check mode.
options:
  packages: {type: list, elements: dict, required: true, description: "What is locked, each with name and version."}
  branch: {type: str, required: true, description: "Branch of the driver, e.g. 595."}
  flavour: {type: str, required: true, choices: [open, proprietary], description: Flavour of its modules.}
  module: {type: str, required: true, choices: [dkms, prebuilt], description: How its modules come.}
  gpu_users: {type: str, default: refuse, choices: [refuse, allow], description: Whether processes may lose the GPUs.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_nvidia_preflight:
    packages: [{name: nvidia-kernel-open-dkms, version: 595.91.07-1}]
    branch: "595"
    flavour: open
    module: dkms
"""
RETURN = r"""
claims: {type: list, returned: success, description: Nothing; the module only reads.}
"""


def main() -> None:
    """Run the module."""
    package = {"name": {"type": "str", "required": True}, "version": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "dict", "required": True, "options": package},
            "branch": {"type": "str", "required": True},
            "flavour": {"type": "str", "required": True, "choices": ["open", "proprietary"]},
            "module": {"type": "str", "required": True, "choices": ["dkms", "prebuilt"]},
            "gpu_users": {"type": "str", "default": "refuse", "choices": ["refuse", "allow"]},
        },
        supports_check_mode=True,
    )
    given, host = module.params, Host()
    wanted = Wanted(
        given["branch"], given["flavour"], given["module"], {one["name"]: one["version"] for one in given["packages"]}
    )
    known = dpkg.packages(host)
    if known is None:
        there = rpm.package_facts(host, list(wanted.packages)).get("packages", {})
        found = problems_of_rpms(host, there, wanted, given["gpu_users"])
    else:
        found = problems(host, known, wanted, given["gpu_users"])
    if found:
        module.fail_json(msg="\n".join(found))
    module.exit_json(changed=False, claims=[])


if __name__ == "__main__":
    main()
