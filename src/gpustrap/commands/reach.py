"""The way into a node: over SSH as enroll left it, or none where the node is this machine."""

from __future__ import annotations

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Access, Node, Secrets
from gpustrap.model.site import Site
from gpustrap.site.access import load_access
from gpustrap.ssh.local import LocalShell, find_local_access
from gpustrap.ssh.session import connect
from gpustrap.ssh.shell import Shell


def open_shell(site: Site, node: Node, secrets: Secrets) -> Shell:
    """A shell on a node.

    Raises:
        GpustrapError: What `connect` raises.
    """
    if node.endpoint.local:
        return LocalShell(node.name)
    return connect(node.endpoint, known_hosts=site.known_hosts, identity=site.ssh_key, secrets=secrets)


def access_of(site: Site, node: Node, secrets: Secrets) -> Access:
    """How the login becomes root on a node.

    Raises:
        GpustrapError: It was never enrolled; or, on this machine, this user cannot become root.
    """
    if node.endpoint.local:
        return find_local_access(node.endpoint, secrets)
    access = load_access(site, node.name)
    if access is None:
        raise GpustrapError(
            Problem(
                code="not-enrolled",
                subject=f"node {node.name}",
                message="is not enrolled, so nothing is known about getting in",
                exit_code=ExitCode.UNREACHABLE,
                remedy=f"gpustrap enroll {node.name}",
            )
        )
    return access
