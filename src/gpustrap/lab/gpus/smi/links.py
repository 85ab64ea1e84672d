"""``nvidia-smi nvlink -s`` and ``nvidia-smi topo``: how GPUs are connected."""

from __future__ import annotations

from os.path import commonpath
from typing import TYPE_CHECKING

from .state import SmiError, chosen

if TYPE_CHECKING:
    from .state import Machine

    Gpu = dict[str, str]

BOLD, PLAIN = "\033[4m", "\033[0m"
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
P2P_LEGEND = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown"""


def nvlink(machine: Machine, words: list[str]) -> str:
    """``nvlink -s [-i ID]``: the state of every link.

    Raises:
        SmiError: Something else is asked.
    """
    if not {"-s", "--status"} & set(words):
        raise SmiError(2, "ERROR: Option is not supported by the lab's stand-in; it has nvlink -s [-i ID]\n")
    wanted = words[words.index("-i") + 1] if "-i" in words[:-1] else ""
    return "\n".join(line for gpu in chosen(machine, wanted) for line in _links(machine, gpu))


def _links(machine: Machine, gpu: Gpu) -> list[str]:
    newer = machine.branch >= 570  # older ones say nothing where they have nothing to say
    head = "GPU {}: {} (UUID: {})".format(gpu["index"], gpu["name"], gpu["uuid"])
    if gpu.get("mig") == "1":
        return [head, "Nvlink queries are not supported for Devices in MIG mode"] if newer else []
    if "nvlinks" not in gpu:
        return [head, "NVML: Unable to retrieve Nvlink information as all links are inActive"] if newer else []
    speed = "{:.5g} GB/s".format(int(gpu["nvlink_mbps"]) / 1000)
    down = _down(gpu)
    return [head, *(f"\t Link {at}: {'<inactive>' if at in down else speed}" for at in range(int(gpu["nvlinks"])))]


def _down(gpu: Gpu) -> set[int]:
    return {int(number) for number in gpu.get("nvlinks_down", "").split(",") if number}


def _active(gpu: Gpu) -> int:
    return int(gpu.get("nvlinks", "0")) - len(_down(gpu)) if gpu.get("mig") != "1" else 0


def topo(machine: Machine, words: list[str]) -> str:
    """``topo -m`` and ``topo -p2p r|w|n``.

    Raises:
        SmiError: Something else is asked.
    """
    gpus = chosen(machine, "")
    if words[:1] == ["-m"]:
        return _matrix(gpus)
    if words[:1] == ["-p2p"] and len(words) == 2:
        return _peers(gpus, words[1])
    raise SmiError(2, "ERROR: Option is not supported by the lab's stand-in; it has topo -m and topo -p2p r|w|n\n")


def _matrix(gpus: list[Gpu]) -> str:
    names = "".join("GPU{}\t".format(gpu["index"]) for gpu in gpus)
    lines = [f"\t{BOLD}{names}CPU Affinity\tNUMA Affinity\tGPU NUMA ID{PLAIN}"]
    for one in gpus:
        row = "".join(relation(one, two) + "\t" for two in gpus)
        lines.append("GPU{}\t{}{}\t{}\t\tN/A".format(one["index"], row, one["cpus"], one["numa"]))
    return "\n".join(lines) + "\n" + LEGEND


def relation(one: Gpu, two: Gpu) -> str:
    """The way from a GPU to another as ``topo -m`` names it."""
    if one is two:
        return " X "
    links = min(_active(one), _active(two))
    if links:
        return f"NV{links}"
    if one["numa"] != two["numa"]:
        return "SYS"
    first, second = (gpu["pci_path"].rstrip("/") for gpu in (one, two))
    shared = len([step for step in commonpath([first, second]).split("/") if step])
    if shared < 2:
        return "PHB" if shared else "NODE"
    return "PIX" if first == second else "PXB"


def _peers(gpus: list[Gpu], kind: str) -> str:
    def status(one: Gpu, two: Gpu) -> str:
        if one is two:
            return "X"
        if kind.startswith("n"):
            return "OK" if min(_active(one), _active(two)) else "NS"
        return "CNS" if "GeForce" in (one["brand"], two["brand"]) else "OK"

    lines = [" \t" + BOLD + "".join("GPU{}\t".format(gpu["index"]) for gpu in gpus) + PLAIN]
    lines += [" GPU{}\t".format(one["index"]) + "".join(status(one, two) + "\t" for two in gpus) for one in gpus]
    return "\n".join([*lines, P2P_LEGEND])
