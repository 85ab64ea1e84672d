"""What the parts above the driver stand on."""

from __future__ import annotations

from dataclasses import dataclass

from gpustrap.catalog.schema_gpu import DriverBranch
from gpustrap.catalog.schema_stack import DriverPackages
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.candidates import Candidate
from gpustrap.resolve.parts import Inputs


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver that was decided.

    Attributes:
        branch: Its branch.
        packages: Its packages' row.
        version: Its own version, ``580.178.04``; empty only offline, where nothing tells it.
        package_version: The version of its packages; empty as above.
        kept: It is on the node already and stays as it is.
    """

    branch: DriverBranch
    packages: DriverPackages
    version: str
    package_version: str
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Staying:
    """A driver that is not to be replaced: the lock's, or the node's own.

    Attributes:
        candidate: What it is.
        version: Of its packages; empty where it is to be upgraded.
        names: Its packages as they are locked or there; empty where it is to be upgraded.
        locked: The lock has it.
    """

    candidate: Candidate
    version: str
    names: tuple[str, ...]
    locked: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """The inputs, the GPUs and the driver of a node."""

    inputs: Inputs
    gpus: tuple[NodeGpu, ...]
    driver: Driver

    @property
    def compute_capabilities(self) -> tuple[str, ...]:
        """Every one a GPU of the node has or may have."""
        return tuple(dict.fromkeys(c for gpu in self.gpus for c in gpu.compute_capabilities))
