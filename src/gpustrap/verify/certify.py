"""Puts certificates together from what verify has. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpustrap.catalog.schema import Catalog
from gpustrap.model.certificate import Certificate, Gpu, Hardware
from gpustrap.model.check import Level, NodeChecks
from gpustrap.model.facts import NVSWITCH, Facts, PciFacts
from gpustrap.model.lock import NodeLock

NVIDIA = "10de"
GPU_CLASSES = ("0300", "0302")  # VGA and 3D
MOST_DEVICES, MOST_BRIDGES = 256, 16  # that a real machine has; a node may say that it has more


@dataclass(frozen=True, slots=True)
class Verification:
    """What all certificates of one verification have in common.

    Attributes:
        run: Its id.
        started: UTC, ISO 8601.
        level: How thorough it was.
        tool: Version of gpustrap.
        catalog: Digest of the catalog.
    """

    run: str
    started: str
    level: Level
    tool: str
    catalog: str


def certify(
    of: Verification, checks: NodeChecks, facts: Facts | None, lock: NodeLock | None, catalog: Catalog
) -> Certificate:
    """The certificate of one node.

    Args:
        of: The verification.
        checks: What was found.
        facts: What the node is, read in the same round trip; None where it did not say.
        lock: Its entry of the lock.
        catalog: Names boards.
    """
    stack = tuple(choice for choice in lock.choices if not choice.pending) if lock else ()
    simulated = any(choice.simulated for choice in stack) or any(check.simulated for check in checks.checks)
    return Certificate(
        node=checks.node,
        verdict=checks.verdict,
        level=of.level,
        run=of.run,
        started=of.started,
        tool=of.tool,
        catalog=of.catalog,
        simulated=simulated or bool(facts and facts.nvidia.simulated),
        hardware=hardware(facts, catalog) if facts else None,
        stack=stack,
        checks=checks.checks,
    )


def hardware(facts: Facts, catalog: Catalog) -> Hardware:
    """The machine, as its certificate has it."""
    system = facts.os
    devices = sorted((pci for pci in facts.pci if pci.vendor == NVIDIA), key=lambda pci: pci.address)
    gpus = [pci for pci in devices if pci.pci_class in GPU_CLASSES]
    return Hardware(
        os=f"{system.pretty_name or f'{system.id} {system.version_id}'.strip()}, {system.architecture}",
        kernel=facts.kernel.running,
        virtualization=facts.virtualization,
        secure_boot=facts.secure_boot.enabled,
        cpu=facts.cpu.model,
        threads=facts.cpu.threads,
        memory=facts.memory.total,
        driver=facts.nvidia.module,
        flavour=facts.nvidia.flavour or "",
        gpus=tuple(_gpu(pci, catalog) for pci in gpus[:MOST_DEVICES]),
        switches=tuple(pci.address for pci in devices if pci.pci_class == NVSWITCH)[:MOST_DEVICES],
    )


def _gpu(pci: PciFacts, catalog: Catalog) -> Gpu:
    boards = catalog.boards(pci.device, pci.subsystem_device)
    links = {board.nvlink for board in boards} - {"none"}
    return Gpu(
        address=pci.address,
        name=" or ".join(dict.fromkeys(board.name for board in boards)) or f"unlisted GPU {pci.vendor}:{pci.device}",
        pci_id=f"{pci.vendor}:{pci.device}",
        uuid=pci.uuid,
        driver=pci.driver or "",
        link_width=pci.link_width,
        link_width_max=pci.link_width_max,
        link_speed=pci.link_speed,
        link_speed_max=pci.link_speed_max,
        numa_node=pci.numa_node,
        bridges=pci.bridges[:MOST_BRIDGES],
        nvlink=links.pop() if len(links) == 1 else "",
    )
