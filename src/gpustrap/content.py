"""Finds what Ansible reads: roles, playbooks, the example inventory and ansible.cfg."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

PACKAGE = Path(str(files("gpustrap")))


def content_root() -> Path:
    """The directory that holds ``ansible.cfg``, ``roles/``, ``playbooks/`` and ``inventory/example/``.

    In an installed wheel that is ``gpustrap/content``; in a checkout, the checkout itself.
    """
    shipped = PACKAGE / "content"
    return shipped if shipped.is_dir() else PACKAGE.parent.parent


def ansible_config() -> Path:
    """The ``ansible.cfg`` that every run of Ansible is given explicitly."""
    return content_root() / "ansible.cfg"
