"""Which other distributions have a driver for a node's GPUs: the last way out of a refusal."""

from __future__ import annotations

from gpustrap.catalog.schema_stack import Module
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.candidates import Candidate
from gpustrap.resolve.gpu.fabric_needs import fabric_missing, fabric_needs
from gpustrap.resolve.gpu.limits import limits_of
from gpustrap.resolve.parts import Inputs


def other_distros(inputs: Inputs, gpus: tuple[NodeGpu, ...], module: Module | None = None) -> list[str]:
    """Names of those that have one for these GPUs and their NVLinks on such a machine.

    Those that would be chosen by themselves there; where there are none, those that must be asked for.

    Args:
        inputs: The node, the request, the catalog.
        gpus: The GPUs.
        module: Only drivers whose modules are made so.
    """
    catalog, machine = inputs.catalog, inputs.facts.os.architecture
    needs = fabric_needs(inputs.facts, gpus)
    limits = tuple({gpu.name: limits_of(gpu, machine) for gpu in gpus}.values())
    drivers = [
        Candidate(branch, row)
        for row in catalog.driver_packages
        if not row.only_kept and module in {None, row.module}
        if catalog.repository(row.repository, machine) and not fabric_missing(row, needs)
        for branch in map(catalog.driver, row.branches)
        if branch and not any(limit.against(branch, row.flavour) for limit in limits)
    ]
    sure = [driver for driver in drivers if driver.branch.supported and not driver.recalled]
    keys = {key for driver in sure or drivers for key in driver.packages.distros}
    return [distro.name for distro in catalog.distros if distro.key in keys - {inputs.distro.key}]
