"""catalog: what this gpustrap knows about GPUs, drivers and packages, and how well it knows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from gpustrap.catalog.check import faults
from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.row import Row
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_gpu import CudaToolkit, DriverBranch, Flavour, Gpu
from gpustrap.catalog.topics import TOPICS, Entry, entries
from gpustrap.commands.catalog_gpus import meant
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import PciFacts
from gpustrap.report.catalog_text import either
from gpustrap.resolve.gpu.boards import NVIDIA, NodeGpu
from gpustrap.resolve.gpu.limits import limits_of


@dataclass(frozen=True, slots=True)
class Contents:
    """One file of the catalog, in figures."""

    topic: str
    rows: int
    recalled: int
    newest: str
    oldest: str


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """What is known of one GPU.

    Attributes:
        gpu: As the resolver sees it; of several boards that share an id, each stands alone here.
        flavours: Kernel module flavours that drive it, on x86_64.
        branches: Driver branches that do, oldest first.
        toolkits: CUDA toolkits that compile for it, oldest first.
    """

    gpu: NodeGpu
    flavours: tuple[Flavour, ...]
    branches: tuple[DriverBranch, ...]
    toolkits: tuple[CudaToolkit, ...]

    @property
    def board(self) -> Gpu | None:
        """Its row; none where only the range of its id is known."""
        return self.gpu.boards[0] if self.gpu.boards else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should not overlook, a sentence each."""
        id_range = self.gpu.id_range
        if id_range is None:
            return ()
        device, names = f"{NVIDIA}:{self.gpu.pci.device}", either(id_range.architectures)
        span = f"{id_range.first} to {id_range.last}"
        fits = "what fits every one that it may be" if len(id_range.architectures) > 1 else "what fits that"
        return (f"{device} is not in the catalog; ids {span} are {names}, and a plan takes only {fits}",)

    def data(self) -> dict[str, Any]:
        """For ``--format json``."""
        id_range = self.gpu.id_range
        return {
            "name": self.gpu.name,
            "gpu": self.board.model_dump(mode="json") if self.board else None,
            "id_range": id_range.model_dump(mode="json") if id_range else None,
            "architectures": [a.model_dump(mode="json") for a in self.gpu.architectures],
            "compute_capabilities": list(self.gpu.compute_capabilities),
            "flavours": list(self.flavours),
            "branches": [b.branch for b in self.branches],
            "cuda": [t.version for t in self.toolkits],
            "recalled": self.gpu.recalled,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Health:
    """How sound and how fresh the installed catalog is.

    Attributes:
        rows: How many there are.
        broken: What its schema and its references say.
        recalled: Rows that nobody read at their source.
        old: Rows checked longer ago than was asked for.
    """

    rows: int = 0
    broken: tuple[str, ...] = ()
    recalled: tuple[Entry, ...] = ()
    old: tuple[Entry, ...] = ()

    def data(self) -> dict[str, Any]:
        """For ``--format json``."""
        return {
            "rows": self.rows,
            "broken": list(self.broken),
            "recalled": [_brief(e) for e in self.recalled],
            "old": [_brief(e) for e in self.old],
        }


def contents(catalog: Catalog) -> tuple[Contents, ...]:
    """The files of the catalog."""
    found = entries(catalog)
    return tuple(
        Contents(
            topic=topic,
            rows=len(rows),
            recalled=sum(e.recalled for e in rows),
            newest=max(e.row.checked for e in rows),
            oldest=min(e.row.checked for e in rows),
        )
        for topic in TOPICS
        if (rows := [e for e in found if e.topic == topic])
    )


def whole_rows(catalog: Catalog, topic: str, words: Sequence[str] = ()) -> dict[str, Any]:
    """The rows of a topic as they stand in its file, of those that have all these words."""
    return {field: _dump(getattr(catalog, field), words) for field in TOPICS[topic]}


def rows(catalog: Catalog, topic: str, words: Sequence[str] = ()) -> tuple[Entry, ...]:
    """The rows of a topic that have all these words.

    Raises:
        GpustrapError: There is none.
    """
    found = tuple(e for e in entries(catalog) if e.topic == topic and _has(e.row, words))
    if not found:
        message = f"no row of {topic} has {' and '.join(words)}"
        problem = Problem("row-unknown", topic, message, ExitCode.USAGE, remedy=f"gpustrap catalog show {topic}")
        raise GpustrapError(problem)
    return found


def find(catalog: Catalog, text: str) -> tuple[KnownGpu, ...]:
    """What is known of GPUs; see `meant`.

    Raises:
        GpustrapError: No board and no range of ids fits.
    """
    return tuple(_known(catalog, device, board) for device, board in meant(catalog, text))


def check(today: date, older_than: int) -> Health:
    """Whether the installed catalog is sound, and what of it rests on memory or is old.

    Args:
        today: From which ages are counted.
        older_than: Days.
    """
    try:
        catalog = load_catalog()
    except ValidationError as error:
        return Health(broken=tuple(f"{error.title}, {_place(e['loc'])}: {e['msg']}" for e in error.errors()))
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        return Health(broken=(f"{type(error).__name__}: {error}",))
    found = entries(catalog)
    return Health(
        rows=len(found),
        broken=faults(catalog),
        recalled=tuple(e for e in found if e.recalled),
        old=tuple(e for e in found if e.age(today) > older_than),
    )


def _known(catalog: Catalog, device: str, board: Gpu | None) -> KnownGpu:
    id_range = None if board else catalog.id_range(device)
    names = (board.architecture,) if board else id_range.architectures if id_range else ()
    gpu = NodeGpu(
        pci=PciFacts(address="", vendor=NVIDIA, device=device),
        boards=(board,) if board else (),
        architectures=tuple(catalog.architecture(name) for name in names),
        id_range=id_range,
    )
    limits = limits_of(gpu, "x86_64")
    fits = [(b, f) for b in catalog.drivers for f in b.flavours if not limits.against(b, f)]
    capabilities = set(gpu.compute_capabilities)
    return KnownGpu(
        gpu=gpu,
        flavours=tuple(sorted(limits.flavours)),
        branches=tuple(dict.fromkeys(branch for branch, _flavour in fits)),
        toolkits=tuple(t for t in catalog.cuda.toolkits if capabilities <= set(t.compute)),
    )


def _place(location: tuple[int | str, ...]) -> str:
    return " ".join(map(str, location))


def _dump(value: Any, words: Sequence[str]) -> Any:  # noqa: ANN401 - whatever the schema holds
    if isinstance(value, tuple):
        return [_dump(item, words) for item in value if not isinstance(item, Row) or _has(item, words)]
    return value.model_dump(mode="json") | {name: _dump(getattr(value, name), words) for name in _lists(value)}


def _lists(value: BaseModel) -> set[str]:
    """Its fields that are rows of their own."""
    inner = {name: getattr(value, name) for name in type(value).model_fields}
    return {name for name, rows in inner.items() if isinstance(rows, tuple) and any(isinstance(r, Row) for r in rows)}


def _has(row: Row, words: Sequence[str]) -> bool:
    """Whether each word, or the beginning of one, is among what the row says; where it was read is no part of that."""
    said = str(row.model_dump(mode="json", exclude={"source", "checked", "kernel_source", *_lists(row)})).lower()
    return all(re.search(rf"(?<![a-z0-9.]){re.escape(word.lower())}", said) for word in words)


def _brief(entry: Entry) -> dict[str, str]:
    return {"topic": entry.topic, "row": entry.name, "source": entry.row.source, "checked": entry.row.checked}
