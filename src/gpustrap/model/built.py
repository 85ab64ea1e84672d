"""The environments that a node has, against those that its lock wants."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import Field

from gpustrap.model.base import FromNode


class State(StrEnum):
    """What is to be said of one build of an environment."""

    READY = "ready"  # in use, from the lock of now, as it was built
    CHANGED = "changed by hand"
    OUTDATED = "of an earlier lock"
    UNWANTED = "not in the lock"
    PREVIOUS = "previous"  # in use before, and kept
    HALF_BUILT = "half-built"  # a build that was cut off; it never counts
    MISSING = "not built"
    UNKNOWN = "unknown"  # in use, and what it says of itself is gone or cannot be read


class Marker(FromNode):
    """What a build says of itself."""

    lock: str = ""
    framework: str = ""
    version: str = ""
    variant: str = ""
    engine: str = ""
    python: str = ""
    built: str = ""


class Build(FromNode):
    """A build as the node program tells of it."""

    name: str
    path: str
    current: bool = False
    previous: bool = False
    marker: Marker = Marker()
    changes: tuple[str, ...] = Field(default=(), max_length=100_000)


class Builds(FromNode):
    """The node program's whole answer."""

    environments: tuple[Build, ...] = Field(default=(), max_length=10_000)


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """One row: a build, or an environment of the lock without one.

    Attributes:
        node: Inventory name.
        name: Of the environment.
        framework: What it is for.
        version: Of the framework, with its variant.
        python: Version of Python.
        built: When, UTC; empty for what was never complete.
        state: What is to be said of it.
        changes: What somebody changed.
        path: Its directory; empty where there is none.
    """

    node: str
    name: str
    framework: str
    version: str
    python: str
    built: str
    state: State
    changes: tuple[str, ...] = ()
    path: str = ""

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "state": self.state.value, "changes": list(self.changes)}
