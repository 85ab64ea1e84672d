"""What a GPU allows: which branches, which kernel module flavours."""

from __future__ import annotations

from dataclasses import dataclass

from gpustrap.catalog.schema_gpu import DriverBranch, Flavour
from gpustrap.resolve.gpu.boards import NodeGpu

NEWEST = 999


@dataclass(frozen=True, slots=True)
class Limits:
    """The branches and flavours that drive one GPU, whatever of its possible architectures it has.

    Attributes:
        branch_min: The first branch.
        branch_max: The last one; `NEWEST` where the newest drives it.
        flavours: Kernel module flavours; none where its possible architectures contradict each other.
    """

    gpu: NodeGpu
    branch_min: int
    branch_max: int
    flavours: frozenset[Flavour]

    def against(self, branch: DriverBranch, flavour: Flavour) -> str:
        """Why a branch in a flavour does not drive the GPU, as the end of a sentence; empty where it does."""
        number = int(branch.branch)
        if number < self.branch_min:
            return f"{self.gpu.name} needs branch {self.branch_min} or newer"
        if number > self.branch_max:
            return f"{self.gpu.name} needs branch {self.branch_max} or older"
        if not {a.name for a in self.gpu.architectures} <= set(branch.architectures):
            return f"branch {branch.branch} does not drive {self.gpu.name}"
        if flavour not in self.flavours:
            return f"the {flavour} modules do not drive {self.gpu.name}"
        return ""

    @property
    def words(self) -> str:
        """``branch 570 or newer, open modules only``."""
        if self.branch_min and self.branch_max < NEWEST:
            branches = f"branch {self.branch_min} to {self.branch_max}"
        elif self.branch_max < NEWEST:
            branches = f"branch {self.branch_max} or older"
        elif self.branch_min:
            branches = f"branch {self.branch_min} or newer"
        else:
            branches = "any branch"
        if len(self.flavours) == 1:
            return f"{branches}, {next(iter(self.flavours))} modules only"
        return f"{branches}, open or proprietary modules" if self.flavours else f"{branches}, modules of no flavour"


def limits_of(gpu: NodeGpu, machine: str) -> Limits:
    """The limits of a GPU in a machine of an architecture (``uname -m``)."""
    flavours: frozenset[Flavour] = frozenset(("open", "proprietary"))
    for architecture in gpu.architectures:
        flavours &= frozenset(("open",)) if machine in architecture.open_only_on else frozenset(architecture.flavours)
    floors = (*(a.driver_min for a in gpu.architectures), *(b.driver_min for b in gpu.boards))
    return Limits(
        gpu=gpu,
        branch_min=max((int(floor) for floor in floors if floor), default=0),
        branch_max=min((int(a.driver_max) for a in gpu.architectures if a.driver_max), default=NEWEST),
        flavours=flavours,
    )
