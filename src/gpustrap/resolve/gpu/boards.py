"""The GPUs of a node, as the catalog knows them: by PCI id, before any driver exists."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property

from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_gpu import Architecture, Gpu, IdRange
from gpustrap.model.facts import Facts, PciFacts
from gpustrap.model.reboot import CONTAINERS

NVIDIA, AMD = "10de", "1002"
GPU_CLASSES = ("0300", "0302")  # VGA and 3D
CLASS = re.compile(r"[0-9a-f]{4}")
BRIDGE = "0680"  # of NVIDIA's, these are NVSwitches
SET_ASIDE = frozenset({"vfio-pci", "pci-stub", "pciback", "xen-pciback"})


def in_virtual_machine(facts: Facts) -> bool:
    """Whether bridges, links and NVSwitches are a host's, and what the node sees of them is made up."""
    return facts.virtualization not in {"none", "unknown", *CONTAINERS}


@cache
def capability(text: str) -> tuple[int, int]:
    """``8.6`` -> (8, 6), so that 10.0 is more than 9.0."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)


@dataclass(frozen=True)
class NodeGpu:
    """One GPU of a node. What is cached is asked for once per row of the catalog.

    Attributes:
        pci: As the node sees it.
        boards: What it may be; several where boards share an id, none where the id is not in the catalog.
        architectures: What it may be: one, or all of its id range.
        id_range: Where only the range of its id is known.
    """

    pci: PciFacts
    boards: tuple[Gpu, ...]
    architectures: tuple[Architecture, ...]
    id_range: IdRange | None = None

    @cached_property
    def name(self) -> str:
        """``GeForce RTX 3090``; of a shared id all names, of an unlisted one the id."""
        names = dict.fromkeys(board.name for board in self.boards)
        return " or ".join(names) if names else f"unlisted NVIDIA GPU {NVIDIA}:{self.pci.device}"

    @property
    def label(self) -> str:
        """Name and PCI address, for findings and refusals."""
        return f"{self.name} ({self.pci.address})"

    @property
    def set_aside(self) -> bool:
        """Whether it is bound for virtual machines, so that the node's own driver will not have it."""
        return self.pci.driver in SET_ASIDE

    @cached_property
    def compute_capabilities(self) -> tuple[str, ...]:
        """Every one it may have, lowest first: the choice must fit them all."""
        found = {b.compute_capability for b in self.boards}
        found = found or {c for a in self.architectures for c in a.compute_capabilities}
        return tuple(sorted(found, key=capability))

    @property
    def vram_gib(self) -> float:
        """What it has at least; 0 where that is not known."""
        return min((b.vram_gib for b in self.boards), default=0.0)

    @property
    def row(self) -> str:
        """How the source of a choice names what is known of it."""
        if self.boards:
            return f"catalog: gpus, {self.boards[0].name}"
        return f"catalog: gpus, ids {self.id_range.first}-{self.id_range.last}" if self.id_range else "catalog: gpus"

    @property
    def recalled(self) -> bool:
        """Whether what is known of it was not read at its source."""
        rows = (*self.boards, *((self.id_range,) if self.id_range else ()))
        return any(row.confidence == "recalled" for row in rows)


def node_gpus(facts: Facts, catalog: Catalog) -> tuple[NodeGpu, ...]:
    """NVIDIA's GPUs of a node, by address."""
    return tuple(_gpu(pci, catalog) for pci in sorted(facts.pci, key=lambda p: p.address) if _is_gpu(pci, catalog))


def unclassed(facts: Facts, catalog: Catalog) -> tuple[PciFacts, ...]:
    """NVIDIA's devices of which neither class nor id tells what they are; a node's own sysfs leaves no class out."""
    return tuple(p for p in facts.pci if p.vendor == NVIDIA and not _has_class(p) and not catalog.boards(p.device))


def _is_gpu(pci: PciFacts, catalog: Catalog) -> bool:
    """By its class; one without, in facts that a person wrote, by its id."""
    known = pci.pci_class in GPU_CLASSES if _has_class(pci) else bool(catalog.boards(pci.device))
    return pci.vendor == NVIDIA and known


def _has_class(pci: PciFacts) -> bool:
    return bool(CLASS.fullmatch(pci.pci_class))


def _gpu(pci: PciFacts, catalog: Catalog) -> NodeGpu:
    boards = catalog.boards(pci.device, pci.subsystem_device)
    if boards:
        names = dict.fromkeys(b.architecture for b in boards)
        return NodeGpu(pci, boards, tuple(catalog.architecture(name) for name in names))
    id_range = catalog.id_range(pci.device)
    names = dict.fromkeys(id_range.architectures if id_range else ())
    return NodeGpu(pci, (), tuple(catalog.architecture(name) for name in names), id_range)


def nv_switches(facts: Facts) -> tuple[PciFacts, ...]:
    """NVSwitches the node sees."""
    return tuple(p for p in facts.pci if p.vendor == NVIDIA and p.pci_class == BRIDGE)


def counted(names: tuple[str, ...]) -> str:
    """``4 x GeForce RTX 3090, 1 x Tesla P40``, in order of first sight."""
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
