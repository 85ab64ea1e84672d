"""Ansible module: exactly the locked driver is installed, from one origin, and stays there. See DOCUMENTATION."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_apt import AptError, Runner
from ansible.module_utils.gpustrap_driver import Asked, Driver
from ansible.module_utils.gpustrap_node.driver_set import Wanted
from ansible.module_utils.gpustrap_node.host import Host

DOCUMENTATION = r"""
module: gpustrap_nvidia_packages
short_description: Exactly the locked driver, in one transaction of apt
description:
  - Finishes what an interrupted dpkg left. Parts of the driver that cannot be configured are removed, to come again.
  - Writes our preferences of apt (one origin of the driver, one version) and what unattended-upgrades leaves alone.
  - Installs the packages, what their modules need of the running kernel and of the one that boots next, and the
    compiler that the kernel was built with, in one transaction. Other parts of the driver that are there move to the
    same version; what cannot stay beside it (another branch or flavour, a pinning package) is removed. Anything else
    that apt would remove, downgrade or change against a hold is refused and listed.
  - If a module does not build, says why by the first errors of DKMS's log, and removes the failed package so that apt
    keeps working. Makes up for builds that did not take place.
  - In check mode changes nothing. What apt cannot be asked about before a repository is there is named in
    RV(would_follow).
options:
  packages: {type: list, elements: dict, required: true, description: "What is locked, each with name and version."}
  kernel_packages: {type: list, elements: str, default: [], description: "For modules; C({kernel}) is its release."}
  branch: {type: str, required: true, description: "Branch of the driver, e.g. 595."}
  flavour: {type: str, required: true, choices: [open, proprietary], description: Flavour of its modules.}
  module: {type: str, required: true, choices: [dkms, prebuilt], description: How its modules come.}
  pin: {type: str, required: true, choices: [preferences, hold], description: What keeps the version.}
  refresh: {type: bool, default: false, description: A repository was added; fetch package lists first.}
  lock_timeout: {type: int, default: 300, description: "How long to wait for another package manager, in seconds."}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_nvidia_packages:
    packages:
      - {name: nvidia-driver-cuda, version: 595.91.07-1}
      - {name: nvidia-kernel-open-dkms, version: 595.91.07-1}
    kernel_packages: ["linux-headers-{kernel}"]
    branch: "595"
    flavour: open
    module: dkms
    pin: preferences
"""
RETURN = r"""
done: {type: list, returned: success, description: "What was done, or would be; one sentence each."}
would_follow: {type: list, returned: success, description: In check mode, what apt cannot be asked about yet.}
claims: {type: list, returned: success, description: The packages and the two files.}
"""


def main() -> None:
    """Run the module."""
    package = {"name": {"type": "str", "required": True}, "version": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "dict", "required": True, "options": package},
            "kernel_packages": {"type": "list", "elements": "str", "default": []},
            "branch": {"type": "str", "required": True},
            "flavour": {"type": "str", "required": True, "choices": ["open", "proprietary"]},
            "module": {"type": "str", "required": True, "choices": ["dkms", "prebuilt"]},
            "pin": {"type": "str", "required": True, "choices": ["preferences", "hold"]},
            "refresh": {"type": "bool", "default": False},
            "lock_timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    given = module.params
    packages = {one["name"]: one["version"] for one in given["packages"]}
    asked = Asked(
        wanted=Wanted(given["branch"], given["flavour"], given["module"], packages),
        kernel_packages=given["kernel_packages"],
        pin=given["pin"],
        lock_timeout=given["lock_timeout"],
        refresh=given["refresh"],
        running=os.uname().release,
    )
    try:
        result = Driver(Runner(), Host(), asked, module.check_mode).ensure()
    except AptError as error:
        module.fail_json(msg=str(error), stderr=error.evidence)
    for warning in result.pop("warnings"):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
