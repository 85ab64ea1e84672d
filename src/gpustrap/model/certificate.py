"""What verify leaves: a certificate of each node, and the summary of all of them. docs/certificate.schema.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.base import Frozen
from gpustrap.model.check import WORST_FIRST, Check, Level, Verdict
from gpustrap.model.lock import Choice


class Gpu(Frozen):
    """One GPU, as the node saw it when it was verified. Speeds in GT/s."""

    address: str = Field(description="on the PCI bus")
    name: str = Field(description="of the board, by the catalog")
    pci_id: str = Field(description="vendor and device: 10de:2330")
    uuid: str = Field("", description="empty before its driver is loaded")
    driver: str = Field("", description="the kernel driver that has it; empty: none")
    link_width: int | None = None
    link_width_max: int | None = None
    link_speed: float | None = Field(None, description="at that moment; an idle GPU slows its link down")
    link_speed_max: float | None = None
    numa_node: int | None = None
    bridges: tuple[str, ...] = Field((), description="addresses of the bridges above it, the root port first")
    nvlink: str = Field("", description="what NVLink the board has, by the catalog; empty: none, or not known")


class Hardware(Frozen):
    """The machine, as far as it says what its GPUs can do."""

    os: str
    kernel: str
    virtualization: str
    secure_boot: bool | None
    cpu: str
    threads: int
    memory: int = Field(description="bytes")
    driver: str = Field(description="version of the loaded NVIDIA driver; empty: none is loaded")
    flavour: str = Field(description="of its kernel module: open, proprietary; empty where none is loaded")
    gpus: tuple[Gpu, ...]
    switches: tuple[str, ...] = Field(description="addresses of NVSwitches")


class Certificate(Frozen):
    """What verify found out about one node."""

    kind: Literal["certificate"] = "certificate"
    version: Literal[1] = 1
    node: str
    verdict: Verdict
    level: Level
    run: str = Field(description="id of the verification")
    started: str = Field(description="UTC, ISO 8601")
    tool: str = Field(description="version of gpustrap")
    catalog: str = Field(description="digest of the catalog")
    simulated: bool = Field(description="something of it rests on a stand-in of the lab")
    hardware: Hardware | None = Field(description="null where the node did not say what it is")
    stack: tuple[Choice, ...] = Field(description="what its lock gives it, and why")
    checks: tuple[Check, ...]

    def called(self, subject: str) -> str:
        """The subject of a measure, for people: a GPU by where it is, anything else by its own name."""
        gpus = self.hardware.gpus if self.hardware else ()
        found = next((gpu.address for gpu in gpus if subject and subject in {gpu.uuid, gpu.address}), "")
        return f"GPU {found.removeprefix('0000:')}" if found else subject or "node"


class Change(Frozen):
    """A difference between two certificates of one node.

    Attributes:
        what: Which part of it.
        subject: Of what: a check, a measure of a GPU, an item of the stack, a part of the machine.
        worse: Whether that is for the worse; a new version is neither better nor worse.
    """

    node: str
    what: Literal["check", "measure", "stack", "hardware"]
    subject: str
    before: str
    after: str
    worse: bool


class Fleet(Frozen):
    """One verification of nodes."""

    kind: Literal["fleet"] = "fleet"
    version: Literal[1] = 1
    level: Level
    run: str = Field(description="its id")
    started: str = Field(description="UTC, ISO 8601")
    seconds: float
    tool: str = Field(description="version of gpustrap")
    catalog: str = Field(description="digest of the catalog")
    nodes: tuple[Certificate, ...]
    problems: tuple[Problem, ...] = Field((), description="nodes that could not be verified, and why")
    against: str = Field("", description="what it was compared with; empty: with nothing")
    changes: tuple[Change, ...] = Field((), description="what differs from there")
    exit_code: ExitCode

    @property
    def simulated(self) -> bool:
        """Whether anything rests on a stand-in of the lab."""
        return any(node.simulated for node in self.nodes)

    @property
    def verdict(self) -> Verdict:
        """The worst of all nodes; one that could not be verified has failed, and so has a fleet of none."""
        found = [node.verdict for node in self.nodes] + [Verdict.FAIL] * bool(self.problems or not self.nodes)
        return min(found, key=WORST_FIRST.index)

    @property
    def worse(self) -> tuple[Change, ...]:
        """What got worse since the certificates it was compared with."""
        return tuple(change for change in self.changes if change.worse)
