"""What a node's NVLinks need to come up, and whether a driver's packages have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpustrap.catalog.schema_stack import DriverPackages
from gpustrap.model.facts import Facts
from gpustrap.resolve.gpu.boards import NodeGpu, counted, nv_switches

Kind = Literal["fabric manager", "subnet manager", "IMEX"]


@dataclass(frozen=True, slots=True)
class Needs:
    """What the node needs, and by which sign."""

    kinds: tuple[Kind, ...]
    why: str


def with_fabric(gpus: tuple[NodeGpu, ...], fabric: str) -> tuple[NodeGpu, ...]:
    """The GPUs whose NVLinks come up in some way; see `gpustrap.catalog.schema_gpu.Gpu.fabric`."""
    return tuple(gpu for gpu in gpus if any(board.fabric == fabric for board in gpu.boards))


def fabric_needs(facts: Facts, gpus: tuple[NodeGpu, ...]) -> Needs:
    """Fabric manager where NVSwitches are seen, its subnet manager for NVLink 5, IMEX in a rack of several nodes."""
    switches = nv_switches(facts)
    fifth, rack = with_fabric(gpus, "nvlink5"), with_fabric(gpus, "imex")
    kinds: list[Kind] = []
    signs = []
    if switches or fifth:
        kinds.append("fabric manager")
    if switches:
        signs.append(f"{len(switches)} NVSwitches among its PCI devices")
    if fifth:
        kinds.append("subnet manager")
        signs.append(f"{counted(tuple(gpu.name for gpu in fifth))} with NVLink 5")
    if rack:
        kinds.append("IMEX")
        signs.append(f"{counted(tuple(gpu.name for gpu in rack))} of a rack that shares memory between nodes")
    return Needs(tuple(kinds), " and ".join(signs))


def fabric_packages(row: DriverPackages, kind: Kind) -> tuple[str, ...]:
    """Templates of the names of one kind's packages; none where nobody read them."""
    return {
        "fabric manager": row.fabric_manager,
        "subnet manager": (*row.subnet_manager, *filter(None, (row.subnet_library,))),
        "IMEX": (row.imex,) if row.imex else (),
    }[kind]


def fabric_missing(row: DriverPackages, needs: Needs) -> tuple[Kind, ...]:
    """What is needed and not known among a driver's packages: CUDA would end with error 802 on such a node."""
    return tuple(kind for kind in needs.kinds if not fabric_packages(row, kind))
