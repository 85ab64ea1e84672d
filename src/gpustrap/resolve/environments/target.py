"""What one environment is asked for, and what it is to compute on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpustrap.errors import Problem
from gpustrap.model.environment import EnvironmentWish
from gpustrap.model.plan import Finding
from gpustrap.resolve.gpu.boards import NodeGpu, counted
from gpustrap.resolve.gpu.naming import address_of, is_model, names
from gpustrap.resolve.gpu.stack import Stack
from gpustrap.resolve.parts import Inputs

VARIABLE = "gpustrap_environments"
ROLE = "ml_environments"


@dataclass(frozen=True, slots=True)
class Target:
    """One environment of one node.

    Attributes:
        stack: Its GPUs and their driver; None where the node has none: it computes on the processor.
        default: Nobody asked for it: what cannot be is no refusal.
    """

    inputs: Inputs
    wish: EnvironmentWish
    stack: Stack | None
    default: bool = False

    @property
    def name(self) -> str:
        """Of the environment."""
        return self.wish.name

    @property
    def item(self) -> str:
        """What its choice is called."""
        return f"environment-{self.wish.name}"

    @property
    def gpus(self) -> tuple[NodeGpu, ...]:
        """Its GPUs."""
        return self.stack.gpus if self.stack else ()

    @property
    def whose(self) -> str:
        """Its GPUs in words, after a preposition."""
        called = counted(tuple(gpu.name for gpu in self.gpus))
        return f"its GPUs ({called})" if self.wish.gpus else f"all GPUs of the node ({called})"

    @property
    def locked(self) -> dict[str, Any]:
        """What the lock has of it; empty where nothing stays."""
        if "environments" in self.inputs.upgrade:
            return {}
        entries = self.inputs.kept(ROLE, f"{ROLE}_environments") or ()
        return next((dict(entry) for entry in entries if entry.get("name") == self.name), {})

    def for_gpus(self, gpus: tuple[NodeGpu, ...]) -> Target:
        """The same for some of its GPUs."""
        return replace(self, stack=replace(self.stack, gpus=gpus)) if self.stack else self


def narrowed(target: Target) -> Target | Finding | Problem:
    """The environment with the GPUs it is asked for; why it is not for this node where it has none of them."""
    wish, inputs = target.wish, target.inputs
    if not wish.gpus:
        return target
    mine = tuple(gpu for gpu in target.gpus if any(names(key, gpu) for key in wish.gpus))
    if wrong := next(_of_no_gpu(target), ""):
        here = "\n".join(gpu.label for gpu in target.gpus) or "no NVIDIA GPU"
        message = f"{VARIABLE}: {target.name} is for GPU {wrong}, and no GPU that gpustrap knows is called so"
        remedy = "name a model or an address as shown, or leave gpus out for all"
        return inputs.problem("environment-of-no-gpu", message, remedy, evidence=here, usage=True)
    if mine:
        return target.for_gpus(mine)
    return Finding(
        code="environment-without-gpus",
        severity="note",
        subject=f"environment {target.name}",
        message=f"it is not planned here: the node has none of its GPUs ({', '.join(wish.gpus)})",
        evidence="\n".join(gpu.label for gpu in target.gpus) or "no NVIDIA GPU among the node's PCI devices",
        advice=f"nothing, where nodes share {VARIABLE}; else correct its gpus",
    )


def _of_no_gpu(target: Target) -> Iterator[str]:
    """A model or an address that another node may have is fine, as groups of nodes share their variables."""
    boards = target.inputs.catalog.gpus
    for key in target.wish.gpus:
        if not address_of(key) and not any(is_model(key, board.name) for board in boards):
            yield key
