"""Whether this machine's Ansible can work with a node."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from gpustrap.catalog.loader import load_catalog
from gpustrap.errors import Problem
from gpustrap.model.facts import Facts
from gpustrap.resolve.controller import controller_too_old


def controller_problem(name: str, facts: Facts) -> Problem | None:
    """Why the ansible-core installed here cannot work with a node; None where it can, as far as anybody knows.

    Args:
        name: The node.
        facts: Its facts; where the probe did not say under which Python it ran, its distribution's counts.
    """
    catalog = load_catalog()
    distro = catalog.distro(facts.os.id, facts.os.version_id)
    python = facts.os.python or (distro.python if distro else "")
    return controller_too_old(name, python, ansible_core(), catalog.controllers)


@cache
def ansible_core() -> str:
    """The version that is installed here."""
    return version("ansible-core")
