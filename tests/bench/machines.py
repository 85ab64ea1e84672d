"""Recorded facts of made-up machines: every GPU of the catalog, alone and in number, on every distribution."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog, Distro
from gpustrap.catalog.schema_gpu import Gpu

# How many GPUs a node has, and of how many kinds; what is more often is here more often.
SHAPES = ((0, 0), (1, 1), (1, 1), (2, 1), (2, 1), (4, 1), (4, 1), (8, 1), (8, 1), (16, 1), (2, 2), (4, 3))
KERNELS = {"debian": "6.12.48-amd64", "ubuntu": "6.8.0-90-generic"}
BRANCH = re.compile(r"\d{3}")
GIB = 1 << 30


def write_machines(directory: Path, count: int) -> None:
    """Write the facts of machines, a file each; the same ones every time."""
    catalog = load_catalog()
    dice = random.Random(20261130)
    directory.mkdir()
    for number in range(count):
        text = json.dumps(_machine(catalog, dice, number))
        (directory / f"n{number:05}.json").write_text(text, encoding="utf-8")


def _machine(catalog: Catalog, dice: random.Random, number: int) -> dict[str, Any]:
    distro = dice.choice(catalog.distros)
    kernel = KERNELS.get(distro.id, "5.14.0-611.el9.x86_64")
    devices, kinds = dice.choice(SHAPES)
    boards = dice.choices(catalog.gpus, k=kinds)
    return {
        "schema_version": 1,
        "os": {
            "id": distro.id,
            "version_id": distro.version_id,
            "codename": distro.codename,
            "pretty_name": distro.name,
            "architecture": "x86_64",
            "hostname": f"n{number}",
            "python": f"{distro.python}.1",
        },
        "kernel": {"running": kernel, "installed": [kernel], "headers": [kernel]},
        "virtualization": "none",
        "cpu": {"model": "made up", "threads": 64},
        "memory": {"total": 512 * GIB, "available": 500 * GIB},
        "filesystems": [
            {"mount": mount, "type": "ext4", "size": 900 * GIB, "free": 800 * GIB, "inodes": 9**8, "inodes_free": 9**8}
            for mount in ("/", "/boot", "/var")
        ],
        "pci": [_device(boards[i % kinds], i) for i in range(devices)],
        "secure_boot": {"enabled": dice.random() < 0.1, "source": "efivar"},
        "package_manager": _packages(catalog, distro, kernel),
        "network": {"addresses": [f"10.0.{number // 250}.{number % 250 + 1}/16"], "routes": ["10.0.0.0/16"]},
        "root": True,
    }


def _device(board: Gpu, number: int) -> dict[str, Any]:
    return {
        "address": f"0000:{number + 1:02x}:00.0",
        "vendor": "10de",
        "device": board.ids[0],
        "subsystem_device": board.subsystem,
        "pci_class": "0302",
        "link_width": board.pcie_width,
        "link_width_max": board.pcie_width,
        "bars": [16 << 20, 256 << 20, 32 << 20],
    }


def _packages(catalog: Catalog, distro: Distro, kernel: str) -> dict[str, Any]:
    """A package manager that knows all it is asked for; the driver's packages in the branch of their name."""
    newest = {row.branch: row.newest for row in catalog.drivers}
    candidates = {}
    for template in catalog.packages():
        name = template.replace("{kernel}", kernel)
        branch = next((b for b in BRANCH.findall(name) if newest.get(b)), "580")
        candidates[name] = f"{newest[branch]}-1"
    return {
        "kind": "apt" if distro.family == "debian" else "dnf",
        "candidates": candidates,
        "candidate_origins": dict.fromkeys(candidates, "https://archive.example stable/main"),
        "versions": {name: [version] for name, version in candidates.items()},
    }
