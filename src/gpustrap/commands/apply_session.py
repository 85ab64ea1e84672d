"""What Ansible is given for an apply: where to, with which inventories, and what only this run knows."""

from __future__ import annotations

import os
import secrets as random
from collections.abc import Iterable, Sequence

from gpustrap.commands.reach import access_of
from gpustrap.converge.session import Settings, Target, site_playbook
from gpustrap.model.lock import NodeLock
from gpustrap.model.node import Node, Secrets
from gpustrap.model.site import Site
from gpustrap.site.inventory import LOCALHOST, VAULT_VARIABLE
from gpustrap.ssh.jump_config import jump_config

# MOK Manager knows one keyboard, the American one: only letters that others have at the same place.
LETTERS = "bcdefghijklnoprstuvx"
LENGTH = 12  # shim takes 8 to 16


def settings_of(site: Site, nodes: Sequence[Node], secrets: Secrets) -> Settings:
    """The settings of a run over these nodes, without the options of it.

    Args:
        site: The site.
        nodes: Those that may be changed.
        secrets: Passwords of this run.
    """
    known_hosts = site.known_hosts.resolve()
    identity = site.ssh_key.resolve() if site.ssh_key.exists() else None
    targets = []
    for node in nodes:
        access = access_of(site, node, secrets)
        local = node.endpoint.local
        ssh_config = "" if local else jump_config(node.endpoint, known_hosts=known_hosts, identity=identity)
        targets.append(Target(node.endpoint, access, ssh_config))
    # The lock gives variables to nodes that are there already, and this machine may be in no inventory.
    here = [f"{LOCALHOST},"] if any(n.endpoint.local and n.name == LOCALHOST for n in nodes) else []
    return Settings(
        playbook=site_playbook(),
        inventories=(site.inventory.resolve(), *here, site.lock.resolve()),
        targets=tuple(targets),
        known_hosts=known_hosts,
        identity=identity,
        vault_password_file=os.environ.get(VAULT_VARIABLE),
    )


def one_time_password(entries: Iterable[NodeLock]) -> str:
    """What a person will type in MOK Manager, should an enrolment be asked for; empty where none can be.

    Shim's request keeps only its hash, and it is worth nothing after the next boot.
    """
    if not any(entry.roles.get("nvidia_driver", {}).get("nvidia_driver_mok") for entry in entries):
        return ""
    return "".join(random.choice(LETTERS) for _ in range(LENGTH))
