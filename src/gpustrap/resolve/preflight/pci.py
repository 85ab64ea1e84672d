"""Memory regions and lanes that the firmware and the slot give a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.gpu.boards import NodeGpu, in_virtual_machine
from gpustrap.resolve.preflight.view import Seen, View, called, note, size, warning

FIRMWARE = "in the firmware switch Above 4G Decoding and Resizable BAR on, and CSM off"


def look_at_pci(view: View) -> Iterator[Seen]:
    """BARs and width. Speed is not judged: at rest, a link slows down to save power."""
    yield from _bars(view)
    yield from _narrow(view)


def _bars(view: View) -> Iterator[Seen]:
    least = view.inputs.catalog.preflight.bar
    unset = tuple(gpu for gpu in view.gpus if gpu.pci.bars_unassigned)
    if unset:
        yield warning(
            "bar-unassigned",
            called(unset),
            "the firmware gave a part of its memory regions no address: the driver cannot start it",
            evidence="\n".join(f"{g.label}: {g.pci.bars_unassigned} without an address" for g in unset),
            advice=f"{FIRMWARE}; where it has no such setting, try pci=realloc on the kernel's command line",
        )
    small = tuple(g for g in view.gpus if g.pci.bars and not g.pci.bars_unassigned and max(g.pci.bars) < least.size)
    if small:
        yield warning(
            "bar-too-small",
            called(small),
            f"its largest memory region is smaller than {size(least.size)}: the driver may not start it",
            evidence="\n".join(f"{g.label}: {', '.join(map(size, g.pci.bars))}" for g in small) + f"\n{least.source}",
            advice=FIRMWARE,
        )


def expected_lanes(view: View, gpu: NodeGpu) -> int:
    """What the request says, else what card and catalog agree on; 0 where nobody knows."""
    known = {gpu.pci.link_width_max or 0, *(board.pcie_width for board in gpu.boards)} - {0}
    return view.inputs.request.pcie_width or min(known, default=0)


def _narrow(view: View) -> Iterator[Seen]:
    narrow = tuple(g for g in view.gpus if g.pci.link_width and g.pci.link_width < expected_lanes(view, g))
    if not narrow:
        return
    lanes = {(gpu.pci.link_width or 0, expected_lanes(view, gpu)) for gpu in narrow}
    asked = view.inputs.request.pcie_width
    have, want = lanes.pop() if len(lanes) == 1 else (0, 0)
    message = f"on {have} of {want} PCIe lanes" if have else "on fewer PCIe lanes than they have"
    evidence = "\n".join(
        f"{g.label}: x{g.pci.link_width}, expected x{expected_lanes(view, g)} "
        f"({'gpustrap_pcie_width' if asked else g.row})"
        for g in narrow
    )
    if in_virtual_machine(view.facts) and not asked:
        message += ", as a virtual machine is shown them: clouds give some cards eight"
        advice = "set gpustrap_pcie_width to what its host gives; if that is more, ask whoever runs the host"
        yield note("pcie-narrow", called(narrow), message, evidence=evidence, advice=advice)
        return
    advice = "check seat, riser and the firmware's bifurcation; if the slot has no more, set gpustrap_pcie_width"
    yield warning("pcie-narrow", called(narrow), message, evidence=evidence, advice=advice)
