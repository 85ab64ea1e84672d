"""Gives every node the role variables that ``gpustrap plan`` wrote into ``gpustrap.lock.yml``."""

from __future__ import annotations

import os
from typing import Any

import yaml
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

DOCUMENTATION = r"""
name: gpustrap_lock
short_description: Role variables from a gpustrap lock file
description:
  - Reads C(gpustrap.lock.yml) and sets, for every node of it that the inventory has, the list C(gpustrap_roles)
    and the variables of these roles. Values are final, they are never templated.
  - It adds no hosts. A node that is in the lock but not in the inventory was removed by the user and stays out;
    a node that is in the inventory but not in the lock has no C(gpustrap_roles), and C(playbooks/site.yml) plans it.
  - Name the inventory first, C(-i inventory -i gpustrap.lock.yml).
options:
  plugin:
    description: Always C(gpustrap_lock). Where this plugin refuses a lock, it keeps Ansible from taking the file for a
      plain YAML inventory instead.
    required: true
    choices: [gpustrap_lock]
"""

FILE_NAME = "gpustrap.lock.yml"
VERSION = 1


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]  # Ansible is untyped
    """See DOCUMENTATION."""

    NAME = "gpustrap_lock"
    trusted_by_default = False  # strings from the lock are data, also where they look like templates

    def verify_file(self, path: str) -> bool:
        """Whether this is a lock file, by its name."""
        return os.path.basename(path) == FILE_NAME

    def parse(self, inventory, loader, path, cache=True) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """Set the variables."""
        super().parse(inventory, loader, path, cache)
        if not inventory.hosts:
            raise AnsibleParserError("name the inventory before the lock: -i inventory -i {0}".format(FILE_NAME))
        nodes = _read(path)
        for name in sorted(nodes):
            if name not in inventory.hosts:
                self.display.vv("{0} is in {1} but not in the inventory: left out".format(name, path))
                continue
            roles = nodes[name]["roles"]
            inventory.set_variable(name, "gpustrap_roles", list(roles))
            for variables in roles.values():
                for variable, value in variables.items():
                    inventory.set_variable(name, variable, value)


def _read(path: str) -> dict[str, Any]:
    """The nodes of a lock file; everything that cannot be one is refused."""
    try:
        with open(path, encoding="utf-8") as stream:
            lock = yaml.safe_load(stream)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AnsibleParserError("{0} cannot be read: {1}. Next: gpustrap plan".format(path, error)) from error
    version = lock.get("version") if isinstance(lock, dict) else None
    if version != VERSION:
        raise AnsibleParserError(
            "{0} has version {1!r}, this gpustrap reads {2}; a newer gpustrap wrote it, or it is no lock. "
            "Next: update gpustrap, or gpustrap plan".format(path, version, VERSION)
        )
    nodes = lock.get("nodes")
    if not isinstance(nodes, dict) or not all(_is_node(n) for n in nodes.values()):
        raise AnsibleParserError("{0} was edited: a node has no roles. Next: gpustrap plan".format(path))
    return dict(nodes)


def _is_node(node: object) -> bool:
    roles = node.get("roles") if isinstance(node, dict) else None
    return isinstance(roles, dict) and all(isinstance(v, dict) for v in roles.values())
