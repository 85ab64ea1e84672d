"""The GPU stack of a node: nothing without GPUs, a refusal where they cannot be driven, else its parts in order."""

from __future__ import annotations

from gpustrap.model.lock import Choice
from gpustrap.model.plan import Reasoning
from gpustrap.resolve.environments.plan import plan_environments
from gpustrap.resolve.gpu.boards import AMD, NodeGpu, counted, node_gpus
from gpustrap.resolve.gpu.containers import plan_containers
from gpustrap.resolve.gpu.cuda import plan_cuda
from gpustrap.resolve.gpu.driver import plan_driver
from gpustrap.resolve.gpu.fabric import plan_fabric
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Inputs, Part
from gpustrap.resolve.preflight.all import look, look_at_room


def plan_gpu(inputs: Inputs, docker: Part) -> dict[str, Part]:
    """The parts of the GPU stack by the role they are for; ``gpus`` and ``preflight`` are for none.

    Args:
        inputs: The node, the request, the catalog.
        docker: What was decided of docker.
    """
    if inputs.request.gpu == "none":
        choice = Choice(item="gpus", value="none", reason="gpustrap_gpu is none", source="request")
        return _plain(inputs, Part((choice,)))
    gpus = node_gpus(inputs.facts, inputs.catalog)
    if not gpus:
        return _plain(inputs, _without(inputs))
    driven = tuple(gpu for gpu in gpus if not gpu.set_aside)
    driver_part, driver = plan_driver(inputs, driven) if driven else (Part(), None)
    found = _gpus(inputs, gpus)
    # A refusal leaves no choices: what was decided before it is told in words.
    said = () if driver else (Reasoning(item="gpus", sentences=(f"{found.value}, {found.reason} ({found.source})",)),)
    parts = {"gpus": Part((found,), reasoning=said), "nvidia_driver": driver_part}
    if driver:
        stack = Stack(inputs, driven, driver)
        parts["nvidia_fabric_manager"] = plan_fabric(stack)
        parts["cuda_toolkit"] = plan_cuda(stack)
        parts["nvidia_container_toolkit"] = plan_containers(stack, docker)
        parts["ml_environments"] = plan_environments(inputs, stack)
    parts["preflight"] = look(inputs, gpus, driver, _disk(parts))
    return parts


def _plain(inputs: Inputs, gpus: Part) -> dict[str, Part]:
    """Without GPUs of its own: what is asked for all the same computes on the processor."""
    parts = {"gpus": gpus, "ml_environments": plan_environments(inputs, None)}
    return {**parts, "preflight": look_at_room(inputs, _disk(parts))}


def _disk(parts: dict[str, Part]) -> dict[str, int]:
    """Directory -> bytes of everything that is planned there."""
    disk: dict[str, int] = {}
    for part in parts.values():
        for directory, size in part.disk:
            disk[directory] = disk.get(directory, 0) + size
    return disk


def _without(inputs: Inputs) -> Part:
    """A node without GPUs is a plain server; one with AMD's alone would be a surprise to somebody."""
    amd = sorted((p for p in inputs.facts.pci if p.vendor == AMD), key=lambda p: p.address)
    if amd:
        message = "its only GPUs are AMD's (on a board or in the processor), which gpustrap cannot set up yet"
        remedy = "set gpustrap_gpu: none to plan the node without a GPU stack"
        evidence = "\n".join(f"{p.address} {p.vendor}:{p.device}" for p in amd)
        return Part(problems=(inputs.problem("amd-not-supported", message, remedy, evidence=evidence),))
    choice = Choice(item="gpus", value="none", reason="no NVIDIA GPU among the node's PCI devices", source="node: PCI")
    return Part((choice,))


def _gpus(inputs: Inputs, gpus: tuple[NodeGpu, ...]) -> Choice:
    rows = tuple(dict.fromkeys(gpu.row for gpu in gpus))
    return Choice(
        item="gpus",
        value=counted(tuple(gpu.name for gpu in gpus)),
        reason="by their PCI ids",
        source="; ".join(rows),
        confidence="recalled" if any(gpu.recalled for gpu in gpus) else "verified",
        simulated=inputs.simulated,
    )
