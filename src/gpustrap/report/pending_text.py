"""What is decided and locked, but not installed by this gpustrap: one line, so that nobody waits for it."""

from __future__ import annotations

from collections.abc import Mapping

from gpustrap.model.lock import NodeLock
from gpustrap.report.escape import one_line


def not_installed(entries: Mapping[str, NodeLock]) -> str:
    """One sentence about all nodes; empty where everything that was planned can be installed.

    Args:
        entries: The entries of the nodes in question.
    """
    nodes = [one_line(name) for name in sorted(entries) if entries[name].pending]
    if not nodes:
        return ""
    roles = dict.fromkeys(role for entry in entries.values() for role in entry.pending)
    shown = ", ".join(nodes) if len(nodes) <= 3 else f"{len(nodes)} nodes"
    return f"Planned for {shown}, but not installed by this version of gpustrap yet: {', '.join(roles)}"
