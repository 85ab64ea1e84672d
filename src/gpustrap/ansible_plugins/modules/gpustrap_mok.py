#!/usr/bin/python
"""Ansible module: the key for modules under Secure Boot. See DOCUMENTATION."""

from __future__ import annotations

import os
import subprocess
from typing import Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_mok import MokError, ensure
from ansible.module_utils.gpustrap_node.host import Host, NodeError

DOCUMENTATION = r"""
module: gpustrap_mok
short_description: Have a key that DKMS signs modules with, and its enrolment asked for
description:
  - Does nothing where Secure Boot is off, or where nothing says that it is on.
  - A key that is there is used; DKMS's own and Ubuntu's are looked for where DKMS looks for them. Otherwise one is
    made, as DKMS would make it.
  - Where shim does not know its certificate, its enrolment is asked for. A person has to confirm it at the console,
    with the one-time password, in the next boot. That cannot be done over SSH.
  - A request that is still open is left alone.
options:
  password:
    description: The one-time password, 8 to 16 letters. Needed only where the enrolment is to be asked for.
    type: str
    default: ""
author: [gpustrap]
attributes:
  check_mode:
    support: full
    description: Says what would follow.
seealso:
  - module: gpustrap_reboot
"""

EXAMPLES = r"""
- name: Ensure modules built here may load under Secure Boot
  gpustrap_mok:
    password: "{{ gpustrap_mok_password }}"
  no_log: true
"""

RETURN = r"""
state: {type: str, returned: success, description: "secure boot is off, enrolled, asked for, or what would follow."}
staged: {type: bool, returned: when asked for, description: The enrolment was asked for just now.}
missed: {type: bool, returned: when asked for, description: It was before, and the node has booted since without it.}
claims: {type: list, returned: under Secure Boot, description: Key and certificate.}
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"password": {"type": "str", "default": "", "no_log": True}}, supports_check_mode=True
    )
    try:
        result = ensure(Host(), run, module.params["password"], module.check_mode)
    except (MokError, NodeError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


def run(argv: Sequence[str], given: str, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a program; 127 where it is not there."""
    try:
        done = subprocess.run(
            list(argv),
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            env={**os.environ, "LC_ALL": "C", **environment},
            timeout=120,
            check=False,
        )
    except FileNotFoundError:
        return 127, "%s is not there" % argv[0]
    except subprocess.TimeoutExpired:
        return 124, "%s gave no answer within 120 s" % argv[0]
    return done.returncode, done.stdout


if __name__ == "__main__":
    main()
