"""A node that is a container, and so has no kernel of its own."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.preflight.view import Seen, View, warning


def look_at_container(view: View) -> Iterator[Seen]:
    """Whose driver it would use. The lab's nodes are containers, and nobody shall be warned of that."""
    kind = view.facts.virtualization
    seen = warning(
        "node-is-container",
        "",
        f"it is a container ({kind}): only the machine it runs on can load kernel modules, the driver's among them",
        evidence=f"systemd-detect-virt: {kind}",
        advice="plan the machine itself; set gpustrap_gpu: none here where only a plain server is wanted",
    )
    yield seen.model_copy(update={"severity": "note"}) if view.inputs.request.simulated else seen
