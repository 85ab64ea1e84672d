"""Ansible module: /usr/local/cuda is the planned toolkit, unless a person chose another. See DOCUMENTATION."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_cuda_default import actions, left_alone, parse
from ansible.module_utils.gpustrap_node.host import Host

DOCUMENTATION = r"""
module: gpustrap_cuda_default
short_description: Make a CUDA toolkit the one that /usr/local/cuda is
description:
  - The group cuda stays in mode auto; the planned toolkit gets the highest priority in it.
  - Mode manual with another toolkit, a link that is not of the alternatives, and a directory are a person's. They are
    left alone, and a warning says so.
author: gpustrap
options:
  prefix: {type: path, required: true, description: "The toolkit's directory, e.g. /usr/local/cuda-12.9."}
  link: {type: path, default: /usr/local/cuda, description: The link.}
  group: {type: str, default: cuda, description: The alternatives' name for it.}
"""

EXAMPLES = r"""
- name: configure | Ensure /usr/local/cuda is the first toolkit
  gpustrap_cuda_default:
    prefix: /usr/local/cuda-12.9
"""

RETURN = r"""
actions: {type: list, returned: always, description: "What update-alternatives was, or would be, told."}
left_alone: {type: str, returned: always, description: Why the link stays as a person made it; empty where it is ours.}
claims: {type: list, returned: always, description: Both links where they are ours.}
"""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "prefix": {"type": "path", "required": True},
            "link": {"type": "path", "default": "/usr/local/cuda"},
            "group": {"type": "str", "default": "cuda"},
        },
        supports_check_mode=True,
    )
    prefix, link, group = (module.params[name] for name in ("prefix", "link", "group"))
    there = parse(alternatives(module, "--display", group, check=False))
    host = Host()
    why = left_alone(host, link, group, prefix, there)
    todo = [] if why else actions(host, link, group, prefix, there)
    if why:
        module.warn(why)
    for one in [] if module.check_mode else todo:
        alternatives(module, *one)
    names = [] if why else [link, "/etc/alternatives/" + group]
    module.exit_json(
        changed=bool(todo), actions=todo, left_alone=why, claims=[{"kind": "link", "name": name} for name in names]
    )


def alternatives(module: AnsibleModule, *arguments: str, check: bool = True) -> str:
    """What update-alternatives says; asked for a group that is not there, it fails."""
    argv = ["update-alternatives", *arguments]
    out: Any = module.run_command(argv, check_rc=check, environ_update={"LC_ALL": "C"})[1]
    return str(out)


if __name__ == "__main__":
    main()
