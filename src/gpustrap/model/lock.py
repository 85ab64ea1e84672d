"""The plan written down: exact choices per node, each with its reason. ``gpustrap.lock.yml``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gpustrap.model.base import Frozen


class Choice(Frozen):
    """One decision of the resolver, and why."""

    item: str = Field(description="what was decided: docker, conda, …")
    value: str
    reason: str
    source: str = Field(description="the catalog row or fact it rests on")
    confidence: Literal["verified", "recalled"] = "verified"
    simulated: bool = Field(default=False, description="rests on a stand-in of the lab")
    pending: bool = Field(default=False, description="decided, but this gpustrap has no role for it yet")


class LockedRepository(Frozen):
    """A package repository that versions of the lock come from.

    Attributes:
        retention: ``kept``: superseded versions stay; ``superseded``: they go, so a locked version may be gone one day.
        snapshot: A public archive of its past, with ``{time}`` for a UTC time as 20261130T000000Z; empty where none.
    """

    name: str
    uri: str = Field("", description="empty: the archive in the node's own sources")
    fingerprints: tuple[str, ...] = Field((), description="primary keys it must be signed with; empty: the system's")
    sha256: str = Field("", description="of the keyring package or key file, where it is pinned")
    retention: Literal["kept", "superseded"]
    snapshot: str = ""


class NodeLock(Frozen):
    """Everything apply needs to know about one node."""

    request_digest: str
    system_digest: str = Field(description="digest of hardware and OS")
    os: str = Field(description="e.g. debian 13 (trixie) x86_64")
    choices: tuple[Choice, ...]
    roles: dict[str, dict[str, Any]] = Field(
        description="role -> its variables (<role>_x), final values; roles run in site order"
    )
    pending: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="the same for what is decided, but this gpustrap has no role for yet"
    )
    repositories: tuple[LockedRepository, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether any choice rests on a stand-in of the lab."""
        return any(c.simulated for c in self.choices)


class Lock(Frozen):
    """The whole site."""

    plugin: Literal["gpustrap_lock"] = Field(
        "gpustrap_lock", description="keeps Ansible's own yaml plugin from taking the lock for an inventory"
    )
    version: Literal[1] = 1
    tool: str
    catalog: str = Field(description="digest of the catalog it was planned with")
    nodes: dict[str, NodeLock]
