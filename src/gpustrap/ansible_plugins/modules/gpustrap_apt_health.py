"""Ansible module: apt is healthy, and says what can be installed. See DOCUMENTATION."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_apt import AptError, Runner
from ansible.module_utils.gpustrap_apt_plan import ensure
from ansible.module_utils.gpustrap_node.host import Host

DOCUMENTATION = r"""
module: gpustrap_apt_health
short_description: Waits for, repairs within safe limits, and asks apt
description:
  - Waits for cloud-init's first boot and for package-manager locks. Never deletes a lock file, never ends a process.
  - Finishes an interrupted dpkg run, keeping configuration files as they are.
  - Repairs broken dependencies only when the repair removes nothing and installs nothing but those dependencies.
  - Says which of O(packages) are missing. Fetches package lists only when one is missing and the lists are older than
    an hour, and refuses when installing them would remove a package that O(may_remove) does not name.
  - Installs python3-apt, which C(ansible.builtin.apt) needs.
  - In check mode changes nothing. Packages that cannot be simulated yet, because lists or a repository are still to
    come, are named in RV(would_follow) and left out of RV(install).
author: gpustrap
options:
  packages:
    description: Packages about to be installed, as C(name), C(name=version), or with name and version; an empty version
      is any, and C({kernel}) in a name the release of the running kernel.
    type: list
    elements: raw
    default: []
  may_remove:
    description: Packages that installing O(packages) may remove.
    type: list
    elements: str
    default: []
  lock_timeout:
    description: How long to wait for locks and for cloud-init, in seconds.
    type: int
    default: 300
"""

EXAMPLES = r"""
- name: install | Ensure apt is healthy
  gpustrap_apt_health:
    packages: "{{ docker_packages }}"
  register: __docker_apt

- name: install | Ensure packages are installed
  ansible.builtin.apt:
    name: "{{ __docker_apt.install }}"
    lock_timeout: 300
  when: __docker_apt.install | length > 0
"""

RETURN = r"""
install:
  description: What C(ansible.builtin.apt) has to install now.
  returned: always
  type: list
would_follow:
  description: Check mode only. What will be installed once lists or a repository are there.
  returned: always
  type: list
repaired:
  description: What was repaired, or would be; one sentence each.
  returned: always
  type: list
claims:
  description: The wanted packages that are installed already.
  returned: always
  type: list
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "raw", "default": []},
            "may_remove": {"type": "list", "elements": "str", "default": []},
            "lock_timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    try:
        result = ensure(
            Runner(),
            Host(),
            packages=[spec(one) for one in module.params["packages"]],
            may_remove=module.params["may_remove"],
            lock_timeout=module.params["lock_timeout"],
            check_mode=module.check_mode,
        )
    except AptError as error:
        module.fail_json(msg=str(error), stderr=error.evidence)
    module.exit_json(**result)


def spec(package: str | dict[str, str]) -> str:
    """``name=version``, as apt takes it."""
    if isinstance(package, dict):
        package = "=".join(filter(None, (package["name"], package.get("version"))))
    return package.replace("{kernel}", os.uname().release)


if __name__ == "__main__":
    main()
