"""The catalog for people: its files, the rows of one, what is known of a GPU, and how sound it all is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.catalog.row import Row
from gpustrap.catalog.schema import CondaInstaller, Distro
from gpustrap.catalog.schema_frameworks import UvWheel, Wheel
from gpustrap.catalog.schema_gpu import (
    Architecture,
    Cuda,
    CudaMajor,
    CudaToolkit,
    DriverBranch,
    Flavour,
    Gpu,
    IdRange,
    Library,
)
from gpustrap.catalog.schema_stack import (
    CdiSupport,
    ContainerToolkit,
    ControllerPython,
    DriverPackages,
    Repository,
)
from gpustrap.catalog.topics import Entry
from gpustrap.report.layout import Columns, card

Column = tuple[str, Callable[[Any], str]]
_LEGENDS: dict[type[Row], tuple[tuple[str, str], ...]] = {
    DriverBranch: (
        ("LTSB, PB", "long-term support branch, production branch"),
        ("NFB", "new-feature branch: dropped when the next one appears"),
        ("kernels before", "the first kernel that its modules do not build or run on; empty where none is known"),
    ),
    DriverPackages: (
        ("package", "the one whose version is the driver's; {branch} stands for the number of the branch"),
        ("seen", "the newest versions that were read there; the node's package manager knows those of today"),
    ),
}
FABRIC = {
    "nvswitch": "fabric manager, where NVSwitches are there",
    "nvlink5": "fabric manager and subnet manager",
    "imex": "IMEX daemon, for NVLink across nodes",
}


def either(names: Sequence[str]) -> str:
    """``Maxwell, Pascal or Volta``."""
    return " or ".join(", ".join(group) for group in (names[:-1], names[-1:]) if group)


def contents_table(files: Iterable[Any]) -> RenderableType:
    """The files, a line each."""
    rows = []
    for file in files:
        span = file.newest if file.newest == file.oldest else f"{file.oldest} to {file.newest}"
        rows.append((file.topic, str(file.rows), str(file.recalled or ""), span))
    return Columns(("topic", "rows", "recalled", "checked"), rows, right=(1, 2), named=False)


def topic_tables(rows: Sequence[Entry]) -> RenderableType:
    """The rows of a topic: a table for each kind of row, each row with its confidence."""
    parts: list[RenderableType] = []
    for kind, group in groupby(rows, key=lambda e: type(e.row) if type(e.row) in _COLUMNS else Row):
        columns = _COLUMNS.get(kind, ())
        headings = (*(heading for heading, _ in columns), "confidence") if columns else ("what", "source", "confidence")
        cells = [
            (*((get(e.row) for _, get in columns) if columns else (e.name, e.row.source)), e.row.confidence)
            for e in group
        ]
        parts += [Columns(headings, cells, named=bool(columns)), Text()]
        if kind in _LEGENDS:
            parts += [card(_LEGENDS[kind]), Text()]
    return Group(*parts[:-1])


def gpu_cards(found: Sequence[Any]) -> RenderableType:
    """What is known of GPUs, a card each."""
    parts: list[RenderableType] = []
    for known in found:
        parts.append(Text(known.board.name if known.board else known.gpu.name, style="bold"))
        parts += [card(_card(known)), Text()]
    return Group(*parts[:-1])


def gpu_list(found: Sequence[Any]) -> RenderableType:
    """Many GPUs, a line each."""
    rows = [
        (known.gpu.name, " ".join(known.board.ids) if known.board else known.gpu.pci.device, _generation(known.gpu))
        for known in found
    ]
    return Columns(("GPU", "PCI ids 10de:", "generation"), rows, named=False)


def health_tables(health: Any, older_than: int) -> RenderableType:  # noqa: ANN401 - of commands, which are above
    """What is recalled, and what is old."""
    parts: list[RenderableType] = []
    for title, rows in (
        ("Recalled: not all of it was read at its source", health.recalled),
        (f"Older than {older_than} days", health.old),
    ):
        if not rows:
            continue
        cells = [(entry.topic, entry.name, entry.row.checked, entry.row.source) for entry in rows]
        parts += [Text(title, style="bold"), Columns(("topic", "row", "checked", "source"), cells), Text()]
    return Group(*parts[:-1])


def _card(known: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - of commands, which are above
    gpu, board = known.gpu, known.board
    row: Row = board or gpu.id_range
    yield "PCI ids", ", ".join(f"10de:{i}" for i in board.ids) if board else f"10de:{gpu.pci.device}"
    yield "generation", _generation(gpu)
    if board:
        yield "memory", f"{board.vram_gib:g} GiB"
        yield "PCIe", _pcie(board)
        yield "NVLink", board.nvlink
        if board.fabric in FABRIC:
            yield "needs", FABRIC[board.fabric]
    yield "kernel modules", _modules(known.flavours, gpu.architectures)
    yield "drivers", "; ".join(_branches(known.branches)) or "none of the catalog"
    yield "CUDA toolkits", _toolkits(known.toolkits)
    yield "source", f"{row.source}, checked {row.checked}"
    if row.confidence == "recalled":
        yield "confidence", "recalled: not all of it was read at its source"


def _generation(gpu: Any) -> str:  # noqa: ANN401 - of resolve, which is beside
    return f"{either([a.name for a in gpu.architectures])}, compute capability {either(gpu.compute_capabilities)}"


def _modules(flavours: Sequence[Flavour], architectures: Sequence[Architecture]) -> str:
    only_on = sorted({machine for a in architectures for machine in a.open_only_on}) if "open" in flavours else []
    return (" or ".join(flavours) or "none fits all it may be") + "".join(f"; on {m} only open" for m in only_on)


def _branches(branches: Iterable[DriverBranch]) -> Iterator[str]:
    rows = list(branches)
    supported = [_branch(b) for b in rows if b.supported]
    ended = [b.branch for b in rows if not b.supported]
    if supported:
        yield ", ".join(supported)
    if ended:
        yield f"ended: {', '.join(ended)}"


def _branch(branch: DriverBranch) -> str:
    ends = f" until {branch.ends}" if branch.ends else ""
    return f"{branch.branch} ({branch.type}{ends}{', recalled' if branch.confidence == 'recalled' else ''})"


def _toolkits(toolkits: Sequence[CudaToolkit]) -> str:
    if not toolkits:
        return "none of the catalog"
    recalled = [t.version for t in toolkits if t.confidence == "recalled"]
    span = toolkits[0].version if len(toolkits) == 1 else f"{toolkits[0].version} to {toolkits[-1].version}"
    return span + (f" ({', '.join(recalled)} recalled)" if recalled else "")


def _pcie(gpu: Gpu) -> str:
    generation = f"{gpu.pcie_generation}.0" if gpu.pcie_generation else ""
    width = f"x{gpu.pcie_width}" if gpu.pcie_width else ""
    return f"{generation} {width}".strip() or "not known"


def _span(architecture: Architecture) -> str:
    if architecture.driver_max:
        return f"{architecture.driver_min} to {architecture.driver_max}".removeprefix(" ")
    return f"{architecture.driver_min} or newer" if architecture.driver_min else "any"


def _listed(values: Iterable[str]) -> str:
    return ", ".join(values)


_COLUMNS: dict[type[Row], tuple[Column, ...]] = {
    Architecture: (
        ("generation", lambda r: r.name),
        ("compute capability", lambda r: _listed(r.compute_capabilities)),
        ("driver branches", _span),
        ("kernel modules", lambda r: _modules(r.flavours, (r,))),
    ),
    IdRange: (
        ("PCI ids 10de:", lambda r: f"{r.first} to {r.last}"),
        ("an unlisted one may be", lambda r: either(r.architectures)),
    ),
    Gpu: (
        ("GPU", lambda r: r.name),
        ("PCI ids 10de:", lambda r: " ".join(r.ids) + (f" ({r.subsystem})" if r.subsystem else "")),
        ("generation", lambda r: r.architecture),
        ("compute", lambda r: r.compute_capability),
        ("GiB", lambda r: f"{r.vram_gib:g}"),
        ("PCIe", _pcie),
        ("NVLink", lambda r: r.nvlink),
    ),
    DriverBranch: (
        ("branch", lambda r: r.branch),
        ("type", lambda r: r.type),
        ("supported", lambda r: f"until {r.ends or 'the next one'}" if r.supported else f"ended {r.ends}".strip()),
        ("newest", lambda r: r.newest),
        ("CUDA", lambda r: r.cuda),
        ("kernel modules", lambda r: " or ".join(r.flavours)),
        ("drives", lambda r: f"{r.architectures[0]} to {r.architectures[-1]}"),
        ("kernels before", lambda r: r.kernel_before),
    ),
    Cuda: (("toolkit package", lambda r: r.package), ("lies in", lambda r: r.prefix)),
    CudaMajor: (("CUDA", lambda r: f"{r.major}.x"), ("runs on branch", lambda r: f"{r.driver_min} or newer")),
    CudaToolkit: (
        ("toolkit", lambda r: r.version),
        ("newest", lambda r: r.newest),
        ("came with driver", lambda r: r.driver_min),
        ("compute capability", lambda r: f"{r.compute_min} to {r.compute_max}"),
        ("read in NVIDIA's repositories", lambda r: _listed(r.repositories)),
    ),
    Library: (
        ("library", lambda r: r.name),
        ("version", lambda r: r.version),
        ("for CUDA", lambda r: f"{r.cuda_major}.x"),
        ("compute capability", lambda r: f"{r.compute_min} or higher"),
        ("packages", lambda r: _listed(r.debs)),
    ),
    Distro: (
        ("distribution", lambda r: r.name),
        ("python", lambda r: r.python),
        ("NVIDIA's repository", lambda r: r.nvidia),
        ("docker", lambda r: _listed(r.docker_packages)),
    ),
    Repository: (
        ("repository", lambda r: r.name),
        ("for", lambda r: r.architecture or "all"),
        ("kind", lambda r: r.kind),
        ("address", lambda r: r.base + r.path),
        ("superseded versions", lambda r: "stay" if r.retention == "kept" else "go"),
    ),
    DriverPackages: (
        ("origin", lambda r: r.origin),
        ("distributions", lambda r: _listed(r.distros)),
        ("branches", lambda r: _listed(r.branches)),
        ("kernel modules", lambda r: f"{r.flavour}, {r.module}"),
        ("package", lambda r: r.leading),
        ("seen", lambda r: _listed(r.seen)),
    ),
    ContainerToolkit: (("container toolkit", lambda r: r.version), ("writes CDI", lambda r: r.cdi_spec)),
    CdiSupport: (
        ("CDI", lambda r: r.spec),
        ("docker that reads it", lambda r: f"{r.docker_min} or newer"),
        ("on by default", lambda r: f"{r.docker_default} or newer"),
        ("podman", lambda r: f"{r.podman_min} or newer"),
    ),
    Wheel: (
        ("framework", lambda r: r.framework),
        ("version", lambda r: r.version),
        ("build", lambda r: r.variant),
        ("CUDA", lambda r: r.cuda or "none"),
        ("python", lambda r: f"{r.pythons[0]} to {r.pythons[-1]}"),
        ("compute capability", lambda r: "; ".join(f"{m}: {_listed(c)}" for m, c in r.compute.items())),
    ),
    UvWheel: (
        ("uv", lambda r: r.version),
        ("for", lambda r: r.architecture),
        ("file", lambda r: r.file),
    ),
    CondaInstaller: (
        ("installer", lambda r: r.distribution),
        ("for", lambda r: r.architecture),
        ("version", lambda r: r.version or "not known"),
    ),
    ControllerPython: (
        ("ansible-core", lambda r: r.ansible_core),
        ("newest python of a node", lambda r: r.node_python_max),
    ),
}
