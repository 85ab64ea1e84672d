"""Puts a lab's nodes into a site: files of the lab's own beside the user's, which Ansible reads together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from gpustrap.lab.engine import refusal
from gpustrap.lab.manager import LabNode
from gpustrap.model.site import Site

HEADER = "# Written by `gpustrap lab up`, removed by `gpustrap lab down`; do not edit.\n"
GROUP = "lab"
STANDINS_GROUP = "lab_standins"


def nodes_file(site: Site) -> Path:
    """The inventory file with the lab's nodes."""
    return site.inventory / "lab.yml"


def standins_file(site: Site) -> Path:
    """The group variables that point at the stand-ins."""
    return site.inventory / "group_vars" / f"{STANDINS_GROUP}.yml"


def write(site: Site, nodes: Sequence[LabNode], standins: Mapping[str, object] | None = None) -> None:
    """Write the inventory of these nodes; with stand-ins, also the variables that point at them.

    Raises:
        GpustrapError: A file of that name is the user's own.
    """
    hosts = {node.name: {"ansible_host": node.address, "ansible_user": node.user} for node in nodes}
    groups: dict[str, object] = {GROUP: {"hosts": hosts}}
    if standins is not None:
        groups[STANDINS_GROUP] = {"children": {GROUP: {}}}
        _write(site, standins_file(site), {"gpustrap_simulated": True, **standins})
    else:
        _remove(standins_file(site))
    _write(site, nodes_file(site), groups)


def remove(site: Site) -> None:
    """Take the lab's nodes out of a site again."""
    _remove(nodes_file(site))
    _remove(standins_file(site))


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8").startswith(HEADER)


def _write(site: Site, path: Path, data: Mapping[str, object]) -> None:
    if path.exists() and not _is_ours(path):
        raise refusal(
            "lab-file-is-yours",
            f"file {path}",
            "the lab keeps its nodes in a file of that name, and this one was not written by it",
            remedy=f"mv {path} {path.with_suffix('.mine')}",
        )
    for directory in (site.root, site.inventory, path.parent):
        if not directory.exists():
            directory.mkdir(parents=True)
            _as_site(site, directory)
    path.write_text(HEADER + yaml.safe_dump(dict(data), sort_keys=False), encoding="utf-8")
    _as_site(site, path)


def _remove(path: Path) -> None:
    if _is_ours(path):
        path.unlink()


def _as_site(site: Site, path: Path) -> None:
    """Under sudo, what is written belongs to whom the site belongs to."""
    there = site.root.stat()
    if os.geteuid() == 0:
        os.chown(path, there.st_uid, there.st_gid)
