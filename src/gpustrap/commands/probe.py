"""Asks nodes something through a program that runs there: one connection and one round trip each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpustrap.commands.reach import access_of, open_shell
from gpustrap.content import PACKAGE
from gpustrap.errors import GpustrapError
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import Progress, Step, silent
from gpustrap.model.site import Site
from gpustrap.ssh import payload
from gpustrap.ssh.fanout import for_each

NODE_PACKAGE = PACKAGE / "ansible_plugins" / "module_utils" / "gpustrap_node"

Request = dict[str, Any]


def ask_nodes(
    site: Site,
    nodes: Sequence[Node],
    *,
    secrets: Secrets,
    request: Request | Callable[[Node], Request],
    entry: str = "gpustrap_node.main",
    packages: Sequence[Path] = (NODE_PACKAGE,),
    forks: int = 20,
    timeout: float = 120,
    progress: Progress = silent,
    asking: str = "asking",
) -> dict[str, dict[str, Any] | GpustrapError]:
    """Ask every node, as root where its login may become root.

    Args:
        site: Has the known host keys, the site's key, and what enroll found out.
        nodes: Which nodes.
        secrets: Passwords of this run.
        request: What to ask; a function of the node is called just before it is sent.
        entry: ``package.module`` whose ``main(request)`` is called.
        packages: Directories with the program, standard library only.
        forks: Nodes asked at a time.
        timeout: Seconds a node may take to answer.
        progress: Told how it goes.
        asking: What it is told while a node works on its answer.

    Returns:
        For each node the whole response (``{"ok": true, "data": …}`` or ``{"ok": false, "error": …}``; from a node, so
        not to be trusted), or why there is none.
    """
    code = payload.bundle(*packages)

    def ask(node: Node) -> dict[str, Any]:
        access = access_of(site, node, secrets)
        progress(Step(node.name, "connecting"))
        with open_shell(site, node, secrets) as session:
            progress(Step(node.name, asking))
            answer = payload.ask(
                session,
                access=access,
                secrets=secrets,
                code=code,
                entry=entry,
                request=request(node) if callable(request) else request,
                timeout=timeout,
            )
        progress(Step(node.name, "answered", done=True))
        return answer

    return for_each(nodes, ask, forks=forks, progress=progress)
