"""Ansible module: may these CUDA toolkits be installed? Changes nothing but apt's lists. See DOCUMENTATION."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_apt import AptError, Runner, installed_packages
from ansible.module_utils.gpustrap_cuda import plan
from ansible.module_utils.gpustrap_node.host import Host

DOCUMENTATION = r"""
module: gpustrap_cuda_packages
short_description: Refuse what a CUDA toolkit must not do, before it is installed
description:
  - Simulates the installation, and refuses when it would install, move or remove a package of a driver, or remove any.
  - Refuses when a planned package is on hold in another version.
  - Asks apt what every package needs, and refuses when a file system lacks the bytes or the inodes.
  - Fetches package lists when they are old or do not know the planned versions. Changes nothing else.
  - In check mode, packages that apt does not know yet are named in RV(would_follow) and left out of RV(install).
author: gpustrap
options:
  packages:
    description: Planned packages.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {type: str, required: true, description: Package name.}
      version: {type: str, required: true, description: Exact version.}
  driver_packages: {type: list, elements: str, required: true, description: Names (globs) of packages of drivers.}
  other_packages: {type: list, elements: str, default: [], description: Names (globs) that are none all the same.}
  lock_timeout: {type: int, default: 300, description: "How long to wait for another package manager, in seconds."}
"""

EXAMPLES = r"""
- name: install_debian | Ensure the toolkits fit and leave the driver alone
  gpustrap_cuda_packages:
    packages: [{name: cuda-toolkit-12-9, version: 12.9.2-1}]
    driver_packages: ["nvidia-*", "libnvidia-*", "cuda-drivers*"]
  register: __cuda_toolkit_apt
"""

RETURN = r"""
install: {type: list, returned: always, description: "What apt is to install now, as name=version."}
would_follow: {type: list, returned: always, description: "In check mode, what apt does not know yet."}
claims: {type: list, returned: always, description: One resource per planned package.}
"""


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    package = {"type": "list", "elements": "dict", "required": True, "options": {"name": text, "version": text}}
    module = AnsibleModule(
        argument_spec={
            "packages": package,
            "driver_packages": {"type": "list", "elements": "str", "required": True},
            "other_packages": {"type": "list", "elements": "str", "default": []},
            "lock_timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    try:
        result = plan(
            Runner(),
            installed_packages(Host()),
            module.params["packages"],
            drivers=module.params["driver_packages"],
            but=module.params["other_packages"],
            lock_timeout=module.params["lock_timeout"],
            check_mode=module.check_mode,
        )
    except AptError as error:
        module.fail_json(msg=str(error), stderr=error.evidence)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
