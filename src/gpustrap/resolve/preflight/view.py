"""What every look at a node is given, and the words that looks share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpustrap.errors import Problem
from gpustrap.model.facts import Facts
from gpustrap.model.plan import Finding
from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.parts import Inputs

GIB = 1024**3
MIB = 1024**2
SHOWN = 8
# The driver's own packages; those of containers and of the toolkit have other versions and other owners.
_DRIVER_PACKAGE = re.compile(
    r"(nvidia|firmware-nvidia|libcuda1|xserver-xorg-video-nvidia|libnvidia|linux-(modules|objects|signatures)-nvidia|cuda-drivers)(?![a-z0-9])"
    r"(?!-(container|ctk|cuda-(toolkit|dev|doc|gdb)|cudnn|docker))"
)


@dataclass(frozen=True, slots=True)
class View:
    """What there is to look at.

    Attributes:
        gpus: NVIDIA's.
        driver: What was decided; None where that was refused.
        disk: Directory -> bytes that the plan will still put there.
    """

    inputs: Inputs
    gpus: tuple[NodeGpu, ...]
    driver: Driver | None
    disk: dict[str, int]

    @property
    def driven(self) -> tuple[NodeGpu, ...]:
        """The GPUs that the node's own driver shall have."""
        return tuple(gpu for gpu in self.gpus if not gpu.set_aside)

    @property
    def facts(self) -> Facts:
        """What the node is."""
        return self.inputs.facts

    @property
    def name(self) -> str:
        """The node's."""
        return self.inputs.name

    def words(self, apt: str, dnf: str) -> str:
        """What to type where packages are apt's, and where they are dnf's."""
        return dnf if self.inputs.distro.family == "redhat" else apt

    @property
    def builds(self) -> Driver | None:
        """The driver whose modules must still be built on the node, and then load; one that is loaded has proved it."""
        driver = self.driver
        proved = driver and driver.kept and self.facts.nvidia.module
        return driver if driver and driver.packages.module == "dkms" and not proved else None


Seen = Finding | Problem
Look = Callable[[View], Iterator[Seen]]


def note(code: str, subject: str, message: str, *, evidence: str = "", advice: str = "") -> Finding:
    """Something worth knowing."""
    return Finding(code=code, severity="note", subject=subject, message=message, evidence=evidence, advice=advice)


def warning(code: str, subject: str, message: str, *, evidence: str = "", advice: str = "") -> Finding:
    """Something that will cost somebody a night if nobody looks after it."""
    return Finding(code=code, severity="warning", subject=subject, message=message, evidence=evidence, advice=advice)


def called(gpus: tuple[NodeGpu, ...]) -> str:
    """``GPU 0000:01:00.0 (GeForce RTX 3090)``; of several only their addresses."""
    if len(gpus) == 1:
        return f"GPU {gpus[0].pci.address} ({gpus[0].name})"
    return f"GPUs {some(gpu.pci.address for gpu in gpus)}"


def labels(gpus: Iterable[NodeGpu]) -> str:
    """One line each."""
    return "\n".join(gpu.label for gpu in gpus)


def some(words: Iterable[str]) -> str:
    """At most eight, and how many more."""
    found = tuple(words)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def size(amount: int) -> str:
    """``9.3 GiB``, and ``256 MiB`` below one."""
    return f"{amount / GIB:.1f} GiB" if amount >= GIB else f"{amount / MIB:.0f} MiB"


def is_driver_package(name: str) -> bool:
    """Whether a package is a part of NVIDIA's driver."""
    return bool(_DRIVER_PACKAGE.match(name))
