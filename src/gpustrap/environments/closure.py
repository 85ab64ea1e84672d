"""What the packages of an environment follow from. Nodes for which it is the same share one lock file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

DIRECTORY = "environments"
CLASS = 12  # digits of the digest in a file's name


class ClosureError(Exception):
    """An environment cannot be locked: what a `Problem` or a `Finding` has, of any node.

    Attributes:
        unreachable: An index did not answer: another environment of the same index need not be tried.
    """

    def __init__(self, code: str, message: str, remedy: str, evidence: str = "", *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.remedy, self.evidence = code, message, remedy, evidence
        self.unreachable = unreachable


@dataclass(frozen=True, slots=True)
class Closure:
    """Everything that decides which packages an environment gets.

    Attributes:
        engine: ``uv`` or ``conda``: what solves and installs.
        python: Major and minor.
        machine: ``x86_64`` or ``aarch64``.
        glibc: What the distribution has at least; wheels for a later one are not taken.
        requirements: What is asked for, with the lines of the user's own file.
        constraints: What whatever comes besides must keep to.
        index: The package index; empty for uv's own, and with engine conda.
        framework_index: PyTorch's own index, for its own packages and no other; empty where there is none.
        channels: Of conda, for all packages or for the Python alone; empty where neither is conda's.
        cuda: What the driver knows, for conda's virtual package; empty with engine uv, where a requirement says it.
        simulated: Chosen for a lab's stand-ins.
    """

    name: str
    engine: str
    python: str
    machine: str
    glibc: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    index: str = ""
    framework_index: str = ""
    channels: tuple[str, ...] = ()
    cuda: str = ""
    simulated: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """Where its packages come from."""
        return tuple(filter(None, (self.framework_index, self.index, *self.channels)))

    @property
    def file(self) -> str:
        """Its lock file, below the site."""
        inputs = json.dumps(list(self._inputs()), separators=(",", ":"))
        return f"{DIRECTORY}/{self.name}-{hashlib.sha256(inputs.encode()).hexdigest()[:CLASS]}.txt"

    @property
    def header(self) -> str:
        """How its lock file begins. A file that begins otherwise was made from something else."""
        lines = [
            f"Environment {self.name}: every package with its version and hash.",
            "Written by `gpustrap plan`. Commit it; do not edit it: change gpustrap_environments and plan again.",
            *(("Simulated: chosen for stand-ins of a lab, not for real GPUs.",) if self.simulated else ()),
            "",
            *(f"{name}: {value}" for name, value in self._inputs()),
        ]
        return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n"

    def _inputs(self) -> Iterator[tuple[str, str]]:
        yield "engine", self.engine
        yield "python", self.python
        yield "machine", self.machine
        yield "glibc", self.glibc
        yield from (("requirement", text) for text in self.requirements)
        yield from (("constraint", text) for text in self.constraints)
        if self.index:
            yield "index", self.index
        if self.framework_index:
            yield "index of PyTorch", self.framework_index
        yield from (("channel", text) for text in self.channels)
        if self.cuda:
            yield "cuda", self.cuda
        if self.simulated:
            yield "simulated", "yes"


@dataclass(frozen=True, slots=True)
class Compiled:
    """The packages of an environment.

    Attributes:
        body: The lock file after its header.
        notes: What an index says against versions that were taken: that one is yanked.
    """

    body: str
    notes: tuple[str, ...] = ()
