"""``--local``: the one node that this machine is, and its sudo password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustrap.cli.secrets import ask_sudo_password
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode

if TYPE_CHECKING:
    from gpustrap.model.node import Secrets
    from gpustrap.model.site import Site


def choose_local(site: Site, secrets: Secrets, nodes: list[str] | None, limit: str | None) -> tuple[list[str], Secrets]:
    """The name of this machine's node, and the passwords with sudo's, asked for on the terminal where it wants one.

    Raises:
        GpustrapError: Other nodes were named as well, it is not plain which node this is, or there is no terminal.
    """
    from gpustrap.site.inventory import this_machine
    from gpustrap.ssh.local import sudo_asks

    if nodes or limit:
        raise GpustrapError(
            Problem(
                code="local-and-nodes",
                subject="option --local",
                message="it means this machine alone, and nodes were named as well",
                exit_code=ExitCode.USAGE,
                evidence=" ".join([*(nodes or ()), *(["--limit", limit] if limit else ())]),
                remedy="leave one of the two out",
            )
        )
    name = this_machine(site)
    if secrets.become_password is None and sudo_asks(name):
        secrets = ask_sudo_password(secrets)
    return [name], secrets
