"""A node as the inventory names it: where it is, how to reach it, and what the user wants there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpustrap.model.plan import Finding
from gpustrap.model.request import Request


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach a node. Over SSH, unset values come from ``ssh -G``.

    Attributes:
        name: Inventory name.
        host: ``ansible_host``, else the inventory name.
        port: ``ansible_port``, when set.
        user: ``ansible_user``, when set.
        ssh_args: ``ansible_ssh_args``, ``_common_args`` and ``_extra_args``, split into words.
        private_key: ``ansible_ssh_private_key_file``, when set.
        python: ``ansible_python_interpreter``, when set.
        local: It is this machine itself: no SSH.
    """

    name: str
    host: str
    port: int | None = None
    user: str | None = None
    ssh_args: tuple[str, ...] = ()
    private_key: str | None = None
    python: str | None = None
    local: bool = False


class Escalation(StrEnum):
    """How a login becomes root on a node, as enroll found it."""

    ROOT = "root"  # the login is root
    NOPASSWD = "nopasswd"
    PASSWORD = "password"  # noqa: S105 - a kind of escalation, not a password
    NOT_ALLOWED = "not-allowed"
    MISSING = "missing"  # no sudo on the node


@dataclass(frozen=True, slots=True)
class Access:
    """What enroll found out about getting in; stored per node in the site.

    Attributes:
        escalation: How to become root.
        become_exe: The sudo to call (``sudo.ws`` where sudo-rs is the default; ansible/ansible#86441).
        requiretty: sudo insists on a terminal.
        python: Absolute path of the node's python3.
    """

    escalation: Escalation
    become_exe: str = "sudo"
    requiretty: bool = False
    python: str = "/usr/bin/python3"


@dataclass(frozen=True, slots=True)
class Secrets:
    """Passwords for one run, from a prompt, a file descriptor or the environment; never from argv.

    Excluded from repr so that a log line or a traceback cannot print them.
    """

    ssh_password: str | None = None
    become_password: str | None = None

    def __repr__(self) -> str:
        """Only whether a password is there."""
        have = [n for n in ("ssh_password", "become_password") if getattr(self, n) is not None]
        return f"Secrets({', '.join(have) or 'none'})"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the inventory.

    Attributes:
        endpoint: How to reach it.
        groups: The inventory's groups it is in.
        request: What the user wants there.
        findings: What is odd about its variables, and stops nothing.
    """

    endpoint: Endpoint
    groups: tuple[str, ...]
    request: Request
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """Inventory name."""
        return self.endpoint.name
