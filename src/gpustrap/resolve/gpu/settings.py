"""Decides what GPUs are set to at every boot: power limits, who may use them, how they outlive sleep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpustrap.errors import Problem
from gpustrap.model.lock import Choice
from gpustrap.model.request import ANY
from gpustrap.resolve.gpu.boards import NodeGpu, counted
from gpustrap.resolve.gpu.naming import address_of, is_model
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.parts import Inputs, Part

VARIABLE = "gpustrap_gpu_power_limit"
# From here on the open modules save a GPU's memory themselves; so far, and the proprietary ones always, units do it:
# download.nvidia.com/XFree86/Linux-x86_64/595.45.04/README/powermanagement.html
NOTIFIERS_SINCE = 595


def plan_settings(inputs: Inputs, gpus: tuple[NodeGpu, ...], driver: Driver) -> Part:
    """Decide the part of role nvidia_driver's variables that packages do not bear on."""
    limits = {gpu.pci.address: watts for gpu in gpus if (watts := _limit(inputs, gpu)) is not None}
    notifies = driver.packages.flavour == "open" and int(driver.branch.branch) >= NOTIFIERS_SINCE
    variables: dict[str, Any] = {
        "nvidia_driver_suspend": "notifiers" if notifies else "services",
        "nvidia_driver_group": inputs.request.gpu_group or "",
        "nvidia_driver_power_limits": [{"address": address, "watts": watts} for address, watts in limits.items()],
    }
    return Part(
        choices=tuple(_choices(inputs, gpus, limits)),
        variables=variables,
        problems=tuple(_problems(inputs, gpus)),
    )


def _limit(inputs: Inputs, gpu: NodeGpu) -> int | None:
    """What is asked for by address, else by model, else for every GPU."""
    asked = inputs.request.gpu_power_limit or {}
    by_address = (watts for key, watts in asked.items() if address_of(key) == gpu.pci.address)
    by_model = (watts for key, watts in asked.items() if any(is_model(key, board.name) for board in gpu.boards))
    return next(by_address, next(by_model, asked.get(ANY)))


def _choices(inputs: Inputs, gpus: tuple[NodeGpu, ...], limits: dict[str, int]) -> Iterator[Choice]:
    if limits:
        words = []
        for watts in dict.fromkeys(limits.values()):
            names = tuple(gpu.name for gpu in gpus if limits.get(gpu.pci.address) == watts)
            words.append(f"{watts} W for {counted(names)}")
        reason = f"{VARIABLE} asks for it; what the boards can take, only their driver knows: apply asks it"
        yield Choice(item="power-limit", value="; ".join(words), reason=reason, source="request")
    if inputs.request.gpu_group:
        reason = "gpustrap_gpu_group lets its members alone use the GPUs"
        yield Choice(item="gpu-group", value=inputs.request.gpu_group, reason=reason, source="request")


def _problems(inputs: Inputs, gpus: tuple[NodeGpu, ...]) -> Iterator[Problem]:
    """A model that another node has is fine, as groups of nodes share their variables; a misspelt one is not."""
    here = {gpu.pci.address for gpu in gpus}
    boards = inputs.catalog.gpus
    for key in inputs.request.gpu_power_limit or {}:
        if key == ANY or address_of(key) in here or any(is_model(key, board.name) for board in boards):
            continue
        what = f"no GPU of the node is at {key}" if address_of(key) else f"no GPU that gpustrap knows is called {key}"
        evidence = "\n".join(gpu.label for gpu in gpus)
        remedy = "name a model or an address as shown, or give one number for all"
        message = f"{VARIABLE}: {what}"
        yield inputs.problem("power-limit-of-no-gpu", message, remedy, evidence=evidence, usage=True)
