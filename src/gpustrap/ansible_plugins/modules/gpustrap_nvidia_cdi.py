"""Ansible module: the CDI specification of the GPUs is true, and the only one. See DOCUMENTATION."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_node import cdi
from ansible.module_utils.gpustrap_node.host import Host
from ansible.module_utils.gpustrap_node.nvidia import PROC, parse_module_version
from ansible.module_utils.gpustrap_node.toml import value, with_value

DOCUMENTATION = r"""
module: gpustrap_nvidia_cdi
short_description: Keep the CDI specification of NVIDIA's GPUs true, and what breaks it away
description:
  - A specification that names files or device nodes which are gone, another driver, or too few GPUs is made anew by
    restarting the unit. A leftover C(/etc/cdi/nvidia.yaml) goes, with a copy beside it, as containers would get the
    devices it names; any other file that names them is only warned of.
  - A leftover C(no-cgroups = true) of a guide for rootless containers is set back, as it leaves docker's containers
    without GPUs; not in LXC, where it is needed. The rest of the toolkit's settings stays as it is.
options:
  unit: {type: str, required: true, description: The unit that writes C(/var/run/cdi/nvidia.yaml).}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_nvidia_cdi:
    unit: gpustrap-nvidia-cdi.service
"""
RETURN = r"""
actions: {type: list, returned: success, description: "What was done, or would be done; one sentence each."}
claims: {type: list, returned: success, description: What the role manages from now on.}
"""

PATH = "/etc/nvidia-container-runtime/config.toml"
CLI = "nvidia-container-cli"
NEXT = "the driver's libraries and its module may differ until a reboot; look at: journalctl -u {0}"


def main() -> None:
    """Settings first, then leftovers, then our own specification."""
    module = AnsibleModule(argument_spec={"unit": {"type": "str", "required": True}}, supports_check_mode=True)
    host = Host()
    actions = mend_settings(module, host) + remove_leftovers(module, host)
    wrong, few = state(host)
    if (wrong or few) and not module.check_mode:
        few = make_anew(module, host)
    if few:  # a GPU that is lost: verify says more of it
        module.warn("{0}: {1}, also after it was made anew".format(cdi.OURS, few))
    if wrong:
        actions.append("{0} made anew: {1}".format(cdi.OURS, "; ".join(wrong)))
    for path in cdi.named_twice(cdi.specs(host)):
        if path not in leftovers():
            module.warn("{0} names GPUs that {1} names, too; rename its devices or remove it".format(path, cdi.OURS))
    claims = [{"kind": "key", "name": PATH + "#/" + CLI + "/no-cgroups"}] if host.exists(PATH) else []
    module.exit_json(changed=bool(actions), actions=actions, claims=claims)


def state(host: Host) -> tuple[list[Any], str]:
    """What is wrong with our specification, and whether it lacks GPUs."""
    driver = parse_module_version(host.read(PROC + "/version") or "")
    ours = next((spec for spec in cdi.specs(host) if spec.path == cdi.OURS), None)
    if ours is None:
        return ["it was not there"], ""
    return cdi.mistakes(host, ours, driver), cdi.too_few(ours, len(host.names(PROC + "/gpus")))


def make_anew(module: AnsibleModule, host: Host) -> str:
    """Has the unit write it; a start would do nothing while a oneshot unit counts as active.

    Returns:
        Whether it still lacks GPUs.
    """
    unit = module.params["unit"]
    rc, _out, err = module.run_command(["systemctl", "restart", unit])
    wrong, few = state(host)
    if rc != 0 or wrong:
        words = module.run_command(["journalctl", "--no-pager", "-o", "cat", "-n", "12", "--unit=" + unit])[1]
        said = "; ".join(wrong) or err.strip()
        module.fail_json(msg="{0}: {1}; {2}\n{3}".format(cdi.OURS, said, NEXT.format(unit), words.strip()))
    return few


def leftovers() -> list[Any]:
    """What older guides have people write once, and nobody renews."""
    return [cdi.LEFTOVERS + "/nvidia" + suffix for suffix in (".yaml", ".json")]


def remove_leftovers(module: AnsibleModule, host: Host) -> list[Any]:
    """A copy stays beside it; its name ends in ~, so that no engine reads it."""
    there = [spec.path for spec in cdi.specs(host) if spec.path in leftovers()]
    for path in there if not module.check_mode else []:
        module.backup_local(host.path(path))
        os.unlink(host.path(path))
    return ["removed {0}, which nothing renews (a copy is beside it)".format(path) for path in there]


def mend_settings(module: AnsibleModule, host: Host) -> list[Any]:
    """no-cgroups = true is for rootless docker and LXC: as root, the container is never allowed its devices."""
    text = host.read(PATH) or ""
    if value(text, CLI, "no-cgroups") != "true" or in_lxc(module):
        return []
    if not module.check_mode:
        path = host.path(PATH)
        module.backup_local(path)
        with open(path + ".gpustrap", "w", encoding="utf-8") as file:
            file.write(with_value(text, CLI, "no-cgroups", "false"))
        module.atomic_move(path + ".gpustrap", path)
    return ["{0}: no-cgroups = true, for rootless containers, is false again".format(PATH)]


def in_lxc(module: AnsibleModule) -> bool:
    """Whether the node is an LXC container, which may not touch cgroups."""
    return str(module.run_command(["systemd-detect-virt", "--container"])[1]).strip().startswith("lxc")


if __name__ == "__main__":
    main()
