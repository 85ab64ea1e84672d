"""GPUs as people name them: by model, or by PCI address in anybody's spelling."""

from __future__ import annotations

import re

from gpustrap.resolve.gpu.boards import NodeGpu

ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


def address_of(key: str) -> str:
    """A PCI address as sysfs spells it, also of lspci's or nvidia-smi's spelling; empty where it is none."""
    if not ADDRESS.fullmatch(key):
        return ""
    domain, _, rest = key.lower().rpartition(":")[0].rpartition(":")
    return f"{int(domain or '0', 16):04x}:{rest}:{key.lower().rpartition(':')[2]}"


def is_model(key: str, name: str) -> bool:
    """``RTX 3090`` is the GeForce RTX 3090, and not the Ti."""
    return f" {name}".lower().endswith(f" {' '.join(key.split())}".lower())


def names(key: str, gpu: NodeGpu) -> bool:
    """Whether a model or an address means a GPU."""
    return address_of(key) == gpu.pci.address or any(is_model(key, board.name) for board in gpu.boards)
