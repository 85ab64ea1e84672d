"""What gpustrap manages on a node: resources, who claims them, and their state after the last run."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from gpustrap.model.base import FromNode


class Kind(StrEnum):
    """A kind of resource; docs/ledger.md lists the fields of each kind's state."""

    PACKAGE = "package"  # name -> version, hold
    FILE = "file"  # path -> sha256, mode, owner, group
    DIRECTORY = "directory"  # path -> mode, owner, group
    LINK = "link"  # path -> target
    UNIT = "unit"  # unit -> enabled, active
    KEY = "key"  # /path/file.json#/key/path -> sha256 of the value
    ENVIRONMENT = "environment"  # /opt/gpustrap/envs/NAME -> lock, fingerprint, what somebody changed


class Claim(FromNode):
    """A role says: this resource is mine. Written by the Ansible callback from a whitelist of arguments."""

    kind: Kind
    name: str
    role: str


class Resource(FromNode):
    """A claimed resource with its state after the last complete run. Empty state: absent."""

    kind: Kind
    name: str
    role: str
    state: dict[str, Any] = Field(default_factory=dict)


class RunMark(FromNode):
    """The last run whose end was recorded on a node."""

    id: str
    complete: bool = Field(default=False, description="no tags, no check mode, no failure, no cancel")


class Ledger(FromNode):
    """Stored root-only on the node as /var/lib/gpustrap/ledger.json."""

    version: Literal[1] = 1
    run: RunMark
    tool: str
    lock_digest: str = Field(description="digest of this node's entry of the lock")
    resources: tuple[Resource, ...] = ()
    left: tuple[Resource, ...] = Field(
        default=(), description="claimed by an earlier run and by none since; still there, perhaps. For gpustrap remove"
    )


class DriftItem(FromNode):
    """One resource that no longer matches, or a lock value that moved on."""

    kind: str
    name: str
    role: str
    wanted: dict[str, Any] = Field(default_factory=dict)
    found: dict[str, Any] = Field(default_factory=dict)
    unknown: str = Field(default="", description="why it could not be read; unknown is never in sync")
