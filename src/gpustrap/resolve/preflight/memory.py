"""Main memory against that of the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.preflight.view import GIB, Seen, View, size, warning


def look_at_memory(view: View) -> Iterator[Seen]:
    """A model is read through main memory, so a node should have as much of it as its GPUs.

    Firmware and kernel keep some of the memory that was bought: MemTotal is what is left.
    """
    total = view.facts.memory.total
    vram = int(sum(gpu.vram_gib for gpu in view.driven) * GIB)
    reserved = view.inputs.catalog.preflight.reserved
    if not total or total >= vram * (100 - reserved.percent) // 100:
        return
    of_each = "\n".join(f"{gpu.label}: {gpu.vram_gib:g} GiB ({gpu.row})" for gpu in view.driven)
    yield warning(
        "memory-below-vram",
        "memory",
        f"it has {size(total)} of memory, and its GPUs {size(vram)}",
        evidence=f"MemTotal: {total // 1024} kB\n{of_each}",
        advice="add memory, or load models in parts: reading one whole into memory ends in the out-of-memory killer",
    )
