"""How a simulated GPU is connected, as lines of the state file: PCI path, NUMA node, processors, NVLink, the fabric."""

from __future__ import annotations

from dataclasses import replace

from gpustrap.lab.gpus.machine import Gpu, Machine, Setting, data
from gpustrap.lab.gpus.sysfs import path_above


def links(there: Machine, gpu: Gpu) -> dict[str, object]:
    """The lines of a GPU; NUMA node -1 is one that the firmware does not tell, as desktops do not."""
    cpus = data("profiles")[there.profile]["cpus"]
    found: dict[str, object] = {
        "pci_path": "/".join(path_above(gpu)) + "/",
        "cpus": cpus[max(gpu.numa, 0)],
        "numa": max(gpu.numa, 0),
    }
    row = gpu.board.data.get("nvlink")
    if row:
        found |= {f"nvlink_{key}": value for key, value in row.items() if key != "links"}
        found |= {"nvlinks": row["links"], "fabric": "Completed"}
    return found


def instances(gpu: Gpu) -> dict[str, object]:
    """What MIG can make of a board."""
    rows = data("mig").get(gpu.board.data.get("mig", ""), {})
    return {f"mig_profile_{key}": " ".join(map(str, row)) for key, row in rows.items() if key != "source"}


def out_of_fabric(there: Machine) -> Machine:
    """The machine as long as its fabric manager has not run; its stand-in puts the GPUs into the fabric."""
    waiting = (Setting(at, "fabric", "In Progress") for at, gpu in enumerate(there.gpus) if gpu.board.can("nvlink"))
    return replace(there, settings=(*there.settings, *waiting))
