"""The GPUs that an environment is for, as one process can see them: whole GPUs together, a MIG device alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpustrap_node import pci
from gpustrap_node.host import Host

from . import symptoms
from .node import STOPPED, Node, Result
from .remedies import Remedy

QUERY = "pci.bus_id,uuid,name,mig.mode.current"
_GPU = re.compile(r"^GPU \d+: .*\(UUID: (GPU-[0-9a-f-]+)\)")
_MIG = re.compile(r"^\s+(MIG .*?)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True)
class Group:
    """GPUs, or one MIG device, that one process uses.

    Attributes:
        names: What to call each, in the order of their PCI addresses; empty: the processor.
        visible: Their UUIDs for CUDA_VISIBLE_DEVICES; empty where that is to be left unset, as users have it.
    """

    names: tuple[str, ...]
    visible: tuple[str, ...]


class GroupError(Exception):
    """The GPUs cannot be told, or not all of them are there."""

    def __init__(self, reason: str, evidence: str, remedy: Remedy) -> None:
        super().__init__(reason)
        self.evidence, self.remedy = evidence, remedy


@dataclass(frozen=True)
class _Gpu:
    address: str
    uuid: str
    name: str
    mig: bool

    @property
    def called(self) -> str:
        return f"GPU {self.address} ({self.name})"


def find(node: Node, host: Host, addresses: Sequence[str]) -> tuple[Group, ...]:
    """The groups, whole GPUs first.

    Args:
        node: The node.
        host: The same.
        addresses: PCI addresses of the GPUs; empty for all of the node.

    Raises:
        GroupError: A GPU is missing, nvidia-smi does not work, or MIG is on and has no devices.
    """
    on_bus = [str(device["address"]) for device in pci.pci_facts(host) if _is_ours(device)]
    wanted = list(addresses or on_bus)
    gone = sorted(set(wanted) - set(on_bus))
    if gone or not wanted:
        reason = f"not on the PCI bus: GPU {', '.join(gone)}" if gone else "it is for GPUs, and the node has none"
        raise GroupError(reason, "", Remedy.KERNEL_LOG if gone else Remedy.PLAN_BUILD)
    asked = node.run("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader", timeout=120)
    if not asked.ok:
        raise _no_answer(asked)
    listed = {gpu.address: gpu for gpu in map(_read, asked.out.splitlines()) if gpu}
    missing = sorted(set(wanted) - set(listed))
    if missing:
        raise GroupError(f"nvidia-smi does not list GPU {', '.join(missing)}", asked.words, Remedy.KERNEL_LOG)
    return _groups(node, [listed[address] for address in sorted(wanted)], whole=len(wanted) == len(on_bus))


def _no_answer(asked: Result) -> GroupError:
    """Why nvidia-smi does not tell the GPUs."""
    if STOPPED in asked.problem:
        return GroupError("nvidia-smi does not answer: a GPU or its driver hangs", asked.words, Remedy.KERNEL_LOG)
    symptom = symptoms.diagnose("", asked.words, "")
    if symptom is None:
        return GroupError("nvidia-smi does not work, so nothing is known about the GPUs", asked.words, Remedy.APPLY)
    return GroupError(f"nvidia-smi does not work: {symptoms.cause(symptom, '')}", asked.words, symptom.remedy)


def _is_ours(device: dict[str, Any]) -> bool:
    """A GPU that programs of this machine can use; one for a virtual machine is none."""
    ours = device["vendor"] == pci.NVIDIA and device["pci_class"] != pci.BRIDGE
    return bool(ours and device["driver"] != "vfio-pci")


def _read(line: str) -> _Gpu | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 4 or not pci.parse_address(cells[0]):
        return None
    return _Gpu(pci.parse_address(cells[0]), cells[1], cells[2], cells[3] == "Enabled")


def _groups(node: Node, gpus: Sequence[_Gpu], *, whole: bool) -> tuple[Group, ...]:
    plain = [gpu for gpu in gpus if not gpu.mig]
    if len(plain) == len(gpus) and whole:
        return (Group(tuple(gpu.called for gpu in gpus), ()),)
    first = [Group(tuple(gpu.called for gpu in plain), tuple(gpu.uuid for gpu in plain))] if plain else []
    return (*first, *(group for gpu in gpus if gpu.mig for group in _mig(node, gpu)))


def _mig(node: Node, gpu: _Gpu) -> list[Group]:
    """Each MIG device of a GPU: a process sees one."""
    asked = node.run("nvidia-smi", "-L", timeout=120)
    found, here = [], False
    for line in asked.out.splitlines():
        head, device = _GPU.match(line), _MIG.match(line)
        here = head.group(1) == gpu.uuid if head else here
        if device and here:
            found.append(Group((f"{device.group(1)} of {gpu.called}",), (device.group(2),)))
    if not found:
        raise GroupError(f"MIG is on and has no devices: {gpu.called}", asked.words, Remedy.MIG)
    return found
