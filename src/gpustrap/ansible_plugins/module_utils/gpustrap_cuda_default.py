"""Whose choice /usr/local/cuda is, and what makes it the planned toolkit. Standard library only, Python 3.8.

The packages of every toolkit register it as an alternative of group cuda. In mode auto priorities decide, and ours is
to be the highest; mode manual, a link of its own, or a directory is what a person made, and stays.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .gpustrap_node.host import Host

STATUS = re.compile(r"status is (auto|manual)|- (auto|manual) mode")
TARGET = re.compile(r"link currently points to (\S+)")
CHOICE = re.compile(r"^(/\S+) - (?:family \S+ )?priority (-?\d+)", re.MULTILINE)


class Default(NamedTuple):
    """What ``update-alternatives --display`` says: who chose, what, and the priorities."""

    mode: str
    target: str
    priorities: dict[str, int]


NONE = Default("auto", "", {})


def parse(text: str) -> Default:
    """The words of ``update-alternatives --display``, of Debian or of RHEL; no words where there is no such group."""
    mode, target = STATUS.search(text), TARGET.search(text)
    if not mode:
        return NONE
    priorities = {path: int(number) for path, number in CHOICE.findall(text)}
    return Default(mode.group(1) or mode.group(2), target.group(1) if target else "", priorities)


def actions(host: Host, link: str, group: str, prefix: str, there: Default) -> list[list[str]]:
    """Arguments of update-alternatives that make the link the planned toolkit; none where it is."""
    others = [number for path, number in there.priorities.items() if path != prefix]
    least = max(others, default=0) + 1
    if there.priorities.get(prefix, 0) < least:
        return [["--install", link, group, prefix, str(least)]]
    leads = there.target == prefix and host.readlink(link) is not None
    return [] if leads else [["--auto", group]]


def left_alone(host: Host, link: str, group: str, prefix: str, there: Default) -> str:
    """Why the link stays as a person made it, and how to have the plan's; empty where it is ours to keep."""
    target, back = host.readlink(link), "sudo update-alternatives --auto %s; then gpustrap apply" % group
    if target is None and host.stat(link, follow=False) is not None:
        why = "%s is no link: a toolkit installed by hand lies there" % link
        back = "move it away, then " + back
    elif target not in (None, "/etc/alternatives/" + group):
        why = "%s leads to %s, and not by the alternatives" % (link, target)
        back = "sudo rm %s, then %s" % (link, back)
    elif there.mode == "manual" and there.target != prefix:
        why = "%s is %s, chosen by hand" % (link, there.target)
    else:
        return ""
    return "%s; it stays. To have %s there, on the node: %s" % (why, prefix, back)
