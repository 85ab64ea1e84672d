"""Every look at a node, in one place."""

from __future__ import annotations

from gpustrap.errors import Problem
from gpustrap.model.plan import Finding
from gpustrap.model.reboot import CONTAINERS
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.parts import Inputs, Part
from gpustrap.resolve.preflight.binding import look_at_binding
from gpustrap.resolve.preflight.bridges import look_at_bridges
from gpustrap.resolve.preflight.components import look_at_components
from gpustrap.resolve.preflight.container import look_at_container
from gpustrap.resolve.preflight.disk import look_at_disk
from gpustrap.resolve.preflight.driver_there import look_at_driver
from gpustrap.resolve.preflight.gpus import look_at_gpus
from gpustrap.resolve.preflight.kernel import look_at_kernel
from gpustrap.resolve.preflight.memory import look_at_memory
from gpustrap.resolve.preflight.nvml import look_at_nvml
from gpustrap.resolve.preflight.pci import look_at_pci
from gpustrap.resolve.preflight.repositories import look_at_repositories
from gpustrap.resolve.preflight.secure_boot import look_at_secure_boot
from gpustrap.resolve.preflight.updates import look_at_updates
from gpustrap.resolve.preflight.view import Look, View

MACHINE: tuple[Look, ...] = (
    look_at_gpus,
    look_at_binding,
    look_at_driver,
    look_at_repositories,
    look_at_components,
    look_at_updates,
    look_at_kernel,
    look_at_secure_boot,
    look_at_nvml,
    look_at_pci,
    look_at_bridges,
    look_at_memory,
    look_at_disk,
)
# In a container, kernel, firmware and driver are the host's.
CONTAINER: tuple[Look, ...] = (look_at_container, look_at_gpus, look_at_disk)


def look(inputs: Inputs, gpus: tuple[NodeGpu, ...], driver: Driver | None, disk: dict[str, int]) -> Part:
    """Findings and refusals about a node with GPUs.

    Args:
        inputs: The node, the request, the catalog.
        gpus: Its NVIDIA GPUs.
        driver: What was decided; None where that was refused.
        disk: Directory -> bytes that the plan will still put there.
    """
    looks = CONTAINER if inputs.facts.virtualization in CONTAINERS else MACHINE
    return _seen(View(inputs, gpus, driver, disk), looks)


def look_at_room(inputs: Inputs, disk: dict[str, int]) -> Part:
    """The same about a node without GPUs: only whether what is planned has room."""
    return _seen(View(inputs, (), None, disk), (look_at_disk,))


def _seen(view: View, looks: tuple[Look, ...]) -> Part:
    seen = [one for look_at in looks for one in look_at(view)]
    findings = [one for one in seen if isinstance(one, Finding)]
    return Part(
        problems=tuple(one for one in seen if isinstance(one, Problem)),
        findings=tuple(sorted(findings, key=lambda finding: finding.severity != "warning")),
    )
