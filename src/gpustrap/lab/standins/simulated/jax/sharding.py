"""jax.sharding: samples spread over devices."""

from __future__ import annotations

from typing import Any


class Mesh:
    """Devices in a row."""

    def __init__(self, devices: Any, axis_names: tuple[str, ...]) -> None:
        self.devices, self.axis_names = list(devices), axis_names


class PartitionSpec(tuple):  # noqa: SLOT001 - JAX's own shape
    """Which axis goes over which devices."""

    def __new__(cls, *names: Any) -> PartitionSpec:
        """By the names of a mesh."""
        return super().__new__(cls, names)


class NamedSharding:
    """How an array is spread over a mesh."""

    def __init__(self, mesh: Mesh, spec: PartitionSpec) -> None:
        self.mesh, self.spec = mesh, spec

    @property
    def devices(self) -> list[Any]:
        """All of the mesh."""
        return self.mesh.devices
