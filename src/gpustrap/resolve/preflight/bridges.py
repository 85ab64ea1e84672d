"""The bridges above the GPUs: what they share, and what they send through the root."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.model.facts import BridgeFacts
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.preflight.pci import expected_lanes
from gpustrap.resolve.preflight.view import Seen, View, called, labels, some, warning


def look_at_bridges(view: View) -> Iterator[Seen]:
    """Only of a real machine: the bridges of a virtual one are made up."""
    if view.facts.virtualization not in {"none", "unknown"}:
        return
    bridges = {bridge.address: bridge for bridge in view.facts.bridges}
    below: dict[str, list[NodeGpu]] = {}
    for gpu in view.gpus:
        bridge = _narrowest(view, gpu, bridges)
        if bridge:
            below.setdefault(bridge.address, []).append(gpu)
    for address, gpus in below.items():
        yield _narrow(bridges[address], tuple(gpus))
    yield from _redirect(view, bridges)


def _narrowest(view: View, gpu: NodeGpu, bridges: dict[str, BridgeFacts]) -> BridgeFacts | None:
    """The bridge, the root port first, that a GPU's traffic has to squeeze through.

    The one a card sits in alone is as narrow as the card's own link, and told there.
    """
    lanes = expected_lanes(view, gpu)
    tight = []
    for address in gpu.pci.bridges:
        bridge = bridges.get(address)
        if bridge is None or not bridge.link_width or bridge.link_width >= lanes:
            continue
        shared = sum(address in other.pci.bridges for other in view.gpus) > 1
        if shared or bridge.link_width < (gpu.pci.link_width or 0):
            tight.append(bridge)
    return min(tight, key=lambda bridge: bridge.link_width or 0, default=None)


def _narrow(bridge: BridgeFacts, gpus: tuple[NodeGpu, ...]) -> Seen:
    lanes = "lane" if bridge.link_width == 1 else "lanes"
    message = f"all traffic of {len(gpus)} GPUs" if len(gpus) > 1 else "its traffic"
    most = f" of x{bridge.link_width_max}" if bridge.link_width_max else ""
    return warning(
        "pcie-bridge-narrow",
        called(gpus),
        f"{message} goes through {bridge.link_width} PCIe {lanes} at bridge {bridge.address}",
        evidence=f"{bridge.address} ({bridge.vendor}:{bridge.device}): x{bridge.link_width}{most}\n{labels(gpus)}",
        advice="put cards into slots with lanes of their own, without a splitter; check the firmware's bifurcation",
    )


def _redirect(view: View, bridges: dict[str, BridgeFacts]) -> Iterator[Seen]:
    """GPUs that talk to each other by way of the IOMMU: slow, and NCCL may hang or read wrong data."""
    if view.facts.virtualization != "none" or len(view.driven) < 2:
        return
    translated = [gpu for gpu in view.driven if (gpu.pci.iommu_type or "").startswith("DMA")]
    above = dict.fromkeys(address for gpu in translated for address in gpu.pci.bridges)
    redirecting = [a for a in above if a in bridges and bridges[a].acs_redirect]
    if not redirecting:
        return
    kinds = ", ".join(sorted({gpu.pci.iommu_type or "" for gpu in translated}))
    yield warning(
        "acs-redirect",
        called(tuple(translated)),
        "ACS and the IOMMU send traffic between GPUs up to the root: NCCL may be slow, hang, or read wrong data",
        evidence=f"bridges with ACS redirection: {some(redirecting)}\nIOMMU groups of type {kinds}",
        advice="iommu=pt on the kernel's command line, or ACS off in the firmware; not where virtual machines get GPUs",
    )
