"""The simulated GPUs of a lab node: what they show, and what goes wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.lab.engine import refusal
from gpustrap.lab.gpus import faults, node
from gpustrap.lab.gpus.machine import Fault, GpuError, Machine, clear, inject
from gpustrap.lab.manager import Lab, LabNode


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """A GPU of a lab node.

    Attributes:
        number: Its number in the profile, as ``--gpu`` takes it.
        listed: NVML's index; None where the driver does not have it.
        faults: What is wrong with it, ``KIND`` or ``KIND=VALUE``.
        settings: What was set since the boot.
    """

    number: int
    name: str
    address: str
    uuid: str
    listed: int | None
    faults: tuple[str, ...]
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    """A lab node's GPUs; everything about them is simulated.

    Attributes:
        driver: Version and flavour of the loaded module, ``nouveau``, or ``none``.
        faults: What is wrong with the machine.
    """

    node: str
    profile: str
    driver: str
    faults: tuple[str, ...]
    gpus: tuple[SimulatedGpu, ...]
    simulated: bool = True


def show(name: str, lab: str) -> SimulatedGpus:
    """What a node's GPUs show now.

    Raises:
        GpustrapError: The node does not run, or has no simulated GPUs.
    """
    return _seen(name, node.running(_node(Lab(lab), name)))


def change(
    name: str,
    lab: str,
    *,
    kinds: Sequence[str] = (),
    gpu: int | None = None,
    clearing: bool = False,
    next_boot: bool = False,
) -> SimulatedGpus:
    """Put faults into a node's GPUs, after taking away those that are there if ``clearing``.

    Args:
        name: The node.
        lab: Its lab.
        kinds: Faults, ``KIND`` or ``KIND=VALUE``.
        gpu: The GPU that has them, by its number in the profile; without it they are the machine's, and all are
            cleared.
        clearing: Take faults away first.
        next_boot: The node finds it so when it boots the next time; now nothing changes.

    Raises:
        GpustrapError: The node does not run or has no simulated GPUs, there is no such fault or GPU, or the board
            cannot have it.
    """
    laboratory = Lab(lab)
    there = _node(laboratory, name)
    directory, where = laboratory.gpus(name), f" --lab {lab}" if lab != "lab" else ""
    try:
        found = node.read(directory) if next_boot else node.running(there)
        if clearing:
            found = clear(found, gpu=gpu)
        for kind in kinds:
            found = inject(found, _fault(f"{name}{where}", kind, gpu, next_boot=next_boot))
        if next_boot:
            node.prepare(directory, found)
        else:
            node.change(there, found)
    except GpuError as error:
        message = str(error).removeprefix(f"node {name}: ")
        raise refusal("lab-gpu-fault", f"node {name}", message, remedy=f"gpustrap lab gpu {name}{where}") from error
    return _seen(name, found)


def _node(laboratory: Lab, name: str) -> LabNode:
    there = laboratory.node(name)
    if not laboratory.gpus(name).exists():
        remedy = f"gpustrap lab up gpu1:debian13 --gpus 4x-rtx3090 --lab {laboratory.name}"
        raise refusal("lab-no-gpus", f"node {name}", "it was started without simulated GPUs", remedy=remedy)
    return there


def _fault(node_words: str, words: str, gpu: int | None, *, next_boot: bool) -> Fault:
    """Read ``KIND[=VALUE]``; ``node_words`` is how a command names the node."""
    kind, _, value = words.partition("=")
    command, evidence = f"gpustrap lab gpu {node_words} --fault", ""
    if kind not in {**faults.GPU, **faults.MACHINE}:
        message, remedy = "there is no such fault", f"{command} lost --gpu 0"
        evidence = f"of a GPU: {', '.join(faults.GPU)}\nof the machine: {', '.join(faults.MACHINE)}"
    elif gpu is None and kind in faults.GPU:
        message, remedy = "it is a fault of one GPU", f"{command} {words} --gpu 0"
    elif gpu is not None and kind in faults.MACHINE:
        message, remedy = "it is a fault of the whole machine", f"{command} {words}"
    elif kind == "nouveau" and not next_boot:
        message, remedy = "which driver takes the GPUs is decided at the boot", f"{command} nouveau --next-boot"
    else:
        return Fault(kind, -1 if gpu is None else gpu, value)
    raise GpustrapError(Problem("lab-gpu-fault", f"--fault {words}", message, ExitCode.USAGE, evidence, remedy))


def _seen(name: str, there: Machine) -> SimulatedGpus:
    indexes = {at: index for index, (at, _) in enumerate(there.bound())}
    gpus = tuple(
        SimulatedGpu(
            number=at,
            name=str(gpu.board.data["name"]),
            address=gpu.address,
            uuid=gpu.uuid,
            listed=indexes.get(at),
            faults=_words(there, at),
            settings=_settings(there, at),
        )
        for at, gpu in enumerate(there.gpus)
    )
    running = there.driver
    driver = f"{running.module} {running.flavour}" if running and running.module else "none"
    return SimulatedGpus(name, there.profile, "nouveau" if there.nouveau else driver, _words(there, -1), gpus)


def _words(there: Machine, gpu: int) -> tuple[str, ...]:
    return tuple(f"{one.kind}={one.value}" if one.value else one.kind for one in there.faults if one.gpu == gpu)


def _settings(there: Machine, gpu: int) -> tuple[str, ...]:
    mine = [one for one in there.settings if one.gpu == gpu]
    said = {
        "persistence": lambda value: f"persistence mode {'on' if value == '1' else 'off'}",
        "power_limit": lambda value: f"power limit {int(value) // 1000} W",
        "mig": lambda value: f"MIG {'on' if value == '1' else 'off'}",
        "fabric": lambda value: f"fabric {value}",
    }
    words = [said[one.key](one.value) for one in mine if one.key in said]
    instances = sum(one.key.startswith("gi_") for one in mine)
    return (*words, *([f"{instances} MIG instance{'s' * (instances > 1)}"] if instances else []))
