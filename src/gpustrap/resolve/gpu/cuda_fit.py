"""Which CUDA toolkits a node's GPUs, driver and repository allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpustrap.catalog.schema_gpu import CudaToolkit
from gpustrap.resolve.gpu.boards import NodeGpu, counted
from gpustrap.resolve.gpu.packages import known, numbers
from gpustrap.resolve.gpu.stack import Stack


@dataclass(frozen=True, slots=True)
class Fit:
    """A toolkit against a node.

    Attributes:
        native: The driver knows all of it, its PTX included; else minor-version compatibility has to do.
        read: Its package was read in NVIDIA's repository for the node's distribution, by us or by the node.
        unfit: Why it cannot be, as the end of a sentence; empty where it can.
        by: What rules it out.
    """

    toolkit: CudaToolkit
    native: bool
    read: bool
    unfit: str = ""
    by: Literal["", "gpus", "driver", "repository"] = ""

    @property
    def version(self) -> str:
        """``12.9``."""
        return self.toolkit.version

    @property
    def automatic(self) -> bool:
        """Whether it may be chosen without being asked for."""
        return not self.unfit and self.read and self.toolkit.confidence == "verified"

    @property
    def against(self) -> str:
        """Why it is not chosen by itself; empty where it may be."""
        if self.unfit or self.automatic:
            return self.unfit
        if self.toolkit.confidence == "recalled":
            return "what the catalog says of it is recalled, not verified"
        return "nobody read its package in NVIDIA's repository for this distribution"


def toolkit_package(stack: Stack, toolkit: CudaToolkit) -> str:
    """``cuda-toolkit-12-9``."""
    major, minor = toolkit.version.split(".")
    return stack.inputs.catalog.cuda.package.format(major=major, minor=minor)


def fits(stack: Stack) -> tuple[Fit, ...]:
    """Every toolkit of the catalog, newest first."""
    toolkits = sorted(stack.inputs.catalog.cuda.toolkits, key=lambda t: numbers(t.version), reverse=True)
    node_reads = any(known(stack.inputs, toolkit_package(stack, t)) for t in toolkits)
    return tuple(_fit(stack, toolkit, node_reads=node_reads) for toolkit in toolkits)


def without_code(stack: Stack, toolkit: CudaToolkit) -> tuple[NodeGpu, ...]:
    """The GPUs of the node that a toolkit does not compile for."""
    return tuple(gpu for gpu in stack.gpus if not set(gpu.compute_capabilities) <= set(toolkit.compute))


def driver_for(stack: Stack, cuda: str) -> str:
    """The first driver branch that runs a CUDA version's programs; empty where that is not known."""
    major = cuda.partition(".")[0]
    return next((row.driver_min for row in stack.inputs.catalog.cuda.majors if row.major == major), "")


def is_native(stack: Stack, cuda: str) -> bool:
    """Whether the driver's branch knows all of a CUDA version, its PTX included."""
    return numbers(cuda) <= numbers(stack.driver.branch.cuda)


def is_compatible(stack: Stack, cuda: str) -> bool:
    """Whether programs of a CUDA version run on the driver's branch, if only by minor-version compatibility."""
    needed = driver_for(stack, cuda)
    return is_native(stack, cuda) or (bool(needed) and int(stack.driver.branch.branch) >= int(needed))


def _fit(stack: Stack, toolkit: CudaToolkit, *, node_reads: bool) -> Fit:
    inputs, driver = stack.inputs, stack.driver
    old = bool(driver.version) and numbers(driver.version) < numbers(toolkit.driver_min)
    native = is_native(stack, toolkit.version) and not old
    on_node = bool(known(inputs, toolkit_package(stack, toolkit)))
    read = on_node or (not node_reads and inputs.distro.nvidia in toolkit.repositories)
    if lacking := without_code(stack, toolkit):
        capabilities = ", ".join(dict.fromkeys(c for gpu in lacking for c in gpu.compute_capabilities))
        words = f"it does not compile for {counted(tuple(g.name for g in lacking))} (compute capability {capabilities})"
        return Fit(toolkit, native, read, words, "gpus")
    if not is_compatible(stack, toolkit.version):
        needed = driver_for(stack, toolkit.version) or "of its own time"
        words = f"it needs driver branch {needed} or newer, and the driver is of {driver.branch.branch}"
        return Fit(toolkit, native, read, words, "driver")
    if inputs.catalog.repository(inputs.distro.nvidia, inputs.facts.os.architecture) is None:
        words = f"NVIDIA has no repository for {inputs.distro.name} on {inputs.facts.os.architecture}"
        return Fit(toolkit, native, read, words, "repository")
    if node_reads and not on_node:
        words = "NVIDIA's repository, as the node reads it, does not have it"
        return Fit(toolkit, native, read, words, "repository")
    return Fit(toolkit, native, read)
