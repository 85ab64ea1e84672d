"""catalog: what this gpustrap knows about GPUs, drivers and packages, and how well it knows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from gpustrap.catalog.check import faults
from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_gpu import CudaToolkit, DriverBranch, Flavour, Gpu
from gpustrap.catalog.topics import TOPICS, Entry, entries
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import PciFacts
from gpustrap.report.catalog_text import either
from gpustrap.resolve.gpu.boards import NVIDIA, NodeGpu
from gpustrap.resolve.gpu.limits import limits_of

_DEVICE = re.compile(r"(?:(?:(?P<vendor>[0-9a-f]{4}):)|0x)?(?P<device>[0-9a-f]{4})")
_WORD = re.compile(r"[a-z0-9]+")


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


def whole_rows(catalog: Catalog, topic: str) -> dict[str, Any]:
    """The rows of a topic as they stand in its file."""
    return {field: _dump(getattr(catalog, field)) for field in TOPICS[topic]}


def find(catalog: Catalog, text: str) -> tuple[KnownGpu, ...]:
    """What is known of a GPU by its PCI id or its name; several where an id is shared or a name fits several.

    Digits that are both, such as 3090, are an id only where a board has it; 10de: before them makes them one.

    Raises:
        GpustrapError: No board and no range of ids fits.
    """
    wanted = text.strip().lower()
    as_id = _DEVICE.fullmatch(wanted)
    if as_id and (as_id["vendor"] or NVIDIA) != NVIDIA:
        message = f"only NVIDIA's GPUs, {NVIDIA}:XXXX, are in the catalog"
        raise GpustrapError(Problem("gpu-unknown", text, message, ExitCode.REFUSED))
    if as_id and (boards := catalog.boards(as_id["device"])):
        return tuple(_known(catalog, as_id["device"], board) for board in boards)
    named = () if as_id and wanted != as_id["device"] else tuple(_named(catalog, wanted))
    if named:
        return tuple(_known(catalog, board.ids[0], board) for board in named)
    if not as_id:
        raise GpustrapError(_no_such_name(catalog, text))
    if catalog.id_range(as_id["device"]) is None:
        device = f"{NVIDIA}:{as_id['device']}"
        message = "it lies in no range of ids that this gpustrap knows, so nothing can be said about it"
        raise GpustrapError(
            Problem("gpu-unknown", device, message, ExitCode.REFUSED, remedy="gpustrap catalog show gpus")
        )
    return (_known(catalog, as_id["device"], None),)


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


def _named(catalog: Catalog, wanted: str) -> Iterator[Gpu]:
    """Boards whose name ends with these words, as GeForce RTX 3090 does with RTX 3090; else those that have them."""
    words = _WORD.findall(wanted)
    spelt = [(board, _WORD.findall(board.name.lower())) for board in catalog.gpus]
    ending = [board for board, name in spelt if words and name[-len(words) :] == words]
    yield from ending or (board for board, name in spelt if words and set(words) <= set(name))


def _no_such_name(catalog: Catalog, text: str) -> Problem:
    names = (*TOPICS, *(g.name for g in catalog.gpus), *(g.name.removeprefix("GeForce ") for g in catalog.gpus))
    known = {name.lower(): name for name in names}
    near = get_close_matches(text.strip().lower(), known, n=3)
    hint = f"; did you mean {either([known[n] for n in near])}?" if near else ""
    message = f"neither a topic nor the PCI id or name of a GPU{hint}"
    evidence = f"topics: {', '.join(TOPICS)}"
    return Problem("gpu-unknown", text, message, ExitCode.USAGE, evidence, "gpustrap catalog show gpus")


def _place(location: tuple[int | str, ...]) -> str:
    return " ".join(map(str, location))


def _dump(value: Any) -> Any:  # noqa: ANN401 - whatever the schema holds
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_dump(row) for row in value]


def _brief(entry: Entry) -> dict[str, str]:
    return {"topic": entry.topic, "row": entry.name, "source": entry.row.source, "checked": entry.row.checked}
