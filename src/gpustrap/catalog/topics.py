"""The rows of the catalog by topic, which is the file they stand in, each with a name for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from pydantic import BaseModel

from gpustrap.catalog.row import Row
from gpustrap.catalog.schema import Catalog, CondaInstaller, Distro
from gpustrap.catalog.schema_gpu import CudaMajor, CudaToolkit, DriverBranch, IdRange, Library
from gpustrap.catalog.schema_stack import CdiSupport, ContainerToolkit, ControllerPython, Repository

# File -> fields of the catalog that are read from it.
TOPICS: dict[str, tuple[str, ...]] = {
    "conda": ("conda",),
    "containers": ("docker", "container_toolkit", "cdi"),
    "cuda": ("cuda",),
    "distros": ("distros",),
    "drivers": ("drivers",),
    "frameworks": ("wheels",),
    "frameworks_conda": ("conda_builds",),
    "gpus": ("architectures", "id_ranges", "gpus"),
    "libraries": ("libraries",),
    "packages": ("driver_packages",),
    "preflight": ("preflight",),
    "repositories": ("repositories",),
    "server": ("server", "controllers"),
    "uv": ("uv",),
}

_NAMES: dict[type[Row], Callable[[Any], str]] = {
    CdiSupport: lambda row: f"CDI {row.spec}",
    CondaInstaller: lambda row: f"{row.distribution} {row.architecture}",
    ContainerToolkit: lambda row: f"toolkit {row.version}",
    ControllerPython: lambda row: f"ansible-core {row.ansible_core}",
    CudaMajor: lambda row: f"{row.major}.x",
    CudaToolkit: lambda row: row.version,
    Distro: lambda row: row.key,
    DriverBranch: lambda row: row.branch,
    IdRange: lambda row: f"{row.first}-{row.last}",
    Library: lambda row: f"{row.name} {row.version} for CUDA {row.cuda_major}",
    Repository: lambda row: f"{row.name} {row.architecture}".strip(),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A row, and where it stands.

    Attributes:
        topic: The file, without its suffix.
        name: For people; of a row that has none, its place in the file.
    """

    topic: str
    name: str
    row: Row

    @property
    def recalled(self) -> bool:
        """Whether nobody read it at its source."""
        return self.row.confidence == "recalled"

    def age(self, today: date) -> int:
        """Days since it was checked."""
        return (today - date.fromisoformat(self.row.checked)).days


def entries(catalog: Catalog) -> tuple[Entry, ...]:
    """Every row, in the order of topics and files."""
    return tuple(
        Entry(topic, _name(row, place.removeprefix(f"{topic} ")), row)
        for topic, fields in TOPICS.items()
        for field in fields
        for place, row in _rows(getattr(catalog, field), field)
    )


def _rows(value: Any, place: str) -> Iterator[tuple[str, Row]]:  # noqa: ANN401 - whatever the schema holds
    if isinstance(value, tuple):
        for item in value:
            yield from _rows(item, place)
    elif isinstance(value, BaseModel):
        if isinstance(value, Row):
            yield place, value
        for name in type(value).model_fields:
            yield from _rows(getattr(value, name), f"{place} {name}")


def _name(row: Row, place: str) -> str:
    named = _NAMES.get(type(row))
    if named:
        return named(row)
    known = getattr(row, "row", "")  # as the source of a choice has it: "catalog: packages, ..."
    return known.partition(", ")[2] or getattr(row, "name", "") or place.replace("_", " ")
