"""Somebody ordinary to run things as: what works for root alone does not work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from .node import Node

ALL = "all"
NOBODY = 65534


@dataclass(frozen=True)
class OrdinaryUser:
    """Who runs a program.

    Attributes:
        argv: What goes before the program; empty where it runs as we do.
        uid: User id.
        gid: Group id.
    """

    argv: tuple[str, ...]
    uid: int = 0
    gid: int = 0


def ordinary_user(node: Node, groups: Iterable[str]) -> OrdinaryUser:
    """User nobody, in the groups that may use what is checked.

    Args:
        node: The node.
        groups: Names of groups; ``all`` and the empty name need none.
    """
    if os.geteuid() != 0 or not any(node.path(f"{place}/setpriv").exists() for place in ("/usr/bin", "/bin")):
        return OrdinaryUser(())
    nobody = _entry(node, "passwd", "nobody")
    uid, gid = (int(nobody[2]), int(nobody[3])) if nobody else (NOBODY, NOBODY)
    entries = [_entry(node, "group", name) for name in dict.fromkeys(groups) if name not in ("", ALL)]
    further = ",".join(entry[2] for entry in entries if entry)
    belongs = ("--groups", further) if further else ("--clear-groups",)
    argv = ("setpriv", "--reuid", str(uid), "--regid", str(gid), *belongs, "--no-new-privs", "--")
    return OrdinaryUser(argv, uid, gid)


def _entry(node: Node, database: str, name: str) -> list[str]:
    """One line of passwd or group, wherever they are kept; empty if there is none."""
    row = node.run("getent", database, name, timeout=20).out.strip().split(":")
    return row if len(row) > 3 and row[2].isdecimal() else []
