"""Whether the ansible-core of this machine can work with a node's Python."""

from __future__ import annotations

from collections.abc import Sequence

from gpustrap.catalog.schema_stack import ControllerPython
from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode


def controller_too_old(
    name: str, node_python: str, ansible_core: str, controllers: Sequence[ControllerPython]
) -> Problem | None:
    """Why this machine cannot run roles on a node; None where it can, or where nothing is known against it.

    Args:
        name: The node.
        node_python: The node's Python, e.g. ``3.14.3`` or ``3.14``; empty where it is not known.
        ansible_core: The version installed on this machine, e.g. ``2.19.14``.
        controllers: The newest Python of a node that each release of ansible-core can work with.
    """
    newest = {_minor(row.ansible_core): row for row in controllers}
    here = max((release for release in newest if release <= _minor(ansible_core)), default=None)
    if not node_python or here is None or _minor(node_python) <= _minor(newest[here].node_python_max):
        return None
    row, python = newest[here], ".".join(map(str, _minor(node_python)))
    fit = [row for _, row in sorted(newest.items()) if _minor(row.node_python_max) >= _minor(node_python)]
    remedy = "update gpustrap, for an ansible-core that can"
    if fit:
        need = f", which needs Python {fit[0].controller_python} or newer here" if fit[0].controller_python else ""
        remedy = f"on this machine, install gpustrap with ansible-core {fit[0].ansible_core} or newer{need}"
    return Problem(
        code="controller-too-old",
        subject=f"node {name}",
        message=f"its Python is {python}, too new for the ansible-core {ansible_core} of this machine",
        exit_code=ExitCode.REFUSED,
        evidence=f"ansible-core {row.ansible_core} works with nodes up to Python {row.node_python_max}",
        remedy=remedy,
    )


def _minor(version: str) -> tuple[int, int]:
    """``3.14.3`` -> (3, 14). What a node says may be no version at all."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
