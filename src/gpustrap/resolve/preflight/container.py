"""A node that is a container, and so has no kernel of its own."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.preflight.view import Seen, View, note


def look_at_container(view: View) -> Iterator[Seen]:
    """Whose driver it would use."""
    kind = view.facts.virtualization
    yield note(
        "node-is-container",
        "",
        f"it is a container ({kind}): kernel and driver are those of the machine it runs on",
        evidence=f"systemd-detect-virt: {kind}",
        advice="plan the machine itself; set gpustrap_gpu: none here where only a plain server is wanted",
    )
