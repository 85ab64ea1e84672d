"""What the catalog knows of the GPUs, and how they go together."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.gpu.boards import NVIDIA, NodeGpu, counted
from gpustrap.resolve.preflight.view import Seen, View, called, labels, note, warning


def look_at_gpus(view: View) -> Iterator[Seen]:
    """Unlisted ids, unknown ones, and mixtures."""
    unlisted: dict[str, list[NodeGpu]] = {}
    for gpu in view.driven:
        if not gpu.boards:
            unlisted.setdefault(gpu.pci.device, []).append(gpu)
    for device, gpus in unlisted.items():
        yield _unlisted(view, device, tuple(gpus))
    names = tuple(gpu.name for gpu in view.driven)
    if len(set(names)) > 1:
        yield note(
            "gpus-mixed",
            "",
            f"its GPUs are of {len(set(names))} models: {counted(names)}",
            evidence=labels(view.driven),
            advice="the plan is what all of them allow: gpustrap plan --explain tells what that rules out",
        )


def _unlisted(view: View, device: str, gpus: tuple[NodeGpu, ...]) -> Seen:
    pci, id_range = gpus[0].pci, gpus[0].id_range
    seen = f"PCI id {NVIDIA}:{device}, subsystem {pci.subsystem_vendor or '?'}:{pci.subsystem_device or '?'}"
    if id_range is None:
        message = f"{called(gpus)}: nothing is known of the id {NVIDIA}:{device}, not even its generation"
        remedy = "set gpustrap_gpu: none to plan the node without a GPU stack, or take a newer gpustrap"
        return view.inputs.problem("gpu-unknown", message, remedy, evidence=seen)
    return warning(
        "gpu-unlisted",
        called(gpus),
        f"the catalog does not list the id {NVIDIA}:{device}; its range is {' or '.join(id_range.architectures)}",
        evidence=f"{seen}\n{gpus[0].row}: {id_range.source}",
        advice="the plan takes only what fits all of that range; report the id and the name of the card",
    )
