"""The picture of a machine: processors, the bridges that GPUs share, GPUs, and what NVLink there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpustrap.model.certificate import Gpu, Hardware
from gpustrap.model.check import WORST_FIRST, Check, Measure, Verdict

ROW, GAP, BETWEEN = 44, 16, 8  # of a GPU's box and the space after it; between columns; between boxes
CPU, BRIDGE, GPU, SWITCH, ARC = 52, 62, 176, 30, 26  # widths of columns
LETTERS = 22  # of a name that fit into a box
MOST = 72  # GPUs drawn: the largest rack that is one machine
BEYOND_PCIE = 1.1  # of what the slot can carry: faster copies take another way
# Gigabytes a second of one lane, one way, by GT/s: 8b/10b up to 5, 128b/130b from 8; PCI Express Base Specification.
LANE = {2.5: 0.25, 5.0: 0.5, 8.0: 0.985, 16.0: 1.969, 32.0: 3.938, 64.0: 7.563}


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the machine. ``kind`` is how it looks: cpu, bridge, gpu, switch."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    words: str = ""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """What connects two boxes. ``kind``: pcie, nvlink."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Topology:
    """The whole picture, and the same in words."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    words: str


@dataclass
class _Part:
    """A processor or a bridge, with what is below it."""

    name: str
    parts: dict[str, _Part] = field(default_factory=dict)
    gpus: list[Gpu] = field(default_factory=list)

    def simplified(self) -> _Part:
        """Without bridges that no two GPUs share: they lead nowhere else."""
        kept = _Part(self.name, gpus=list(self.gpus))
        for part in self.parts.values():
            below = part.simplified()
            if len(below.gpus) + len(below.parts) > 1:
                kept.parts[below.name] = below
            else:
                kept.gpus += below.gpus
                kept.parts |= below.parts
        return kept

    @property
    def depth(self) -> int:
        """Of the bridges below it."""
        return max((1 + part.depth for part in self.parts.values()), default=0)


def topology(machine: Hardware, checks: Sequence[Check]) -> Topology | None:
    """The picture; None where the machine has no GPU.

    Args:
        machine: What it is.
        checks: Colour GPUs by their measures, and tell by copies between GPUs where NVLink is.
    """
    if not machine.gpus:
        return None
    return _Drawing(machine, checks).whole()


class _Drawing:
    """Boxes are laid out from left to right by what they are, and from top to bottom as they come."""

    def __init__(self, machine: Hardware, checks: Sequence[Check]) -> None:
        self.machine = machine
        self.gpus = machine.gpus[:MOST]
        self.roots = _tree(self.gpus)
        self.verdicts = _verdicts(checks)
        self.links = _links(self.gpus, checks)
        depth = max(root.depth for root in self.roots)
        self.gpu_x = CPU + GAP + depth * (BRIDGE + GAP)
        self.boxes: list[Box] = []
        self.wires: list[Wire] = []
        self.rows: dict[str, float] = {}
        self.next_y = 1.0

    def whole(self) -> Topology:
        for root in self.roots:
            self._part(root, 1.0, CPU, "cpu")
        width = self.gpu_x + GPU + 2
        if self.machine.switches:
            self._switches()
            width += GAP + SWITCH
        elif self.links:
            for one, other in self.links:
                self._arc(self.rows[one], self.rows[other])
            width += ARC
        return Topology(width, self.next_y - BETWEEN + 1, tuple(self.boxes), tuple(self.wires), self._words())

    def _part(self, part: _Part, x: float, width: float, kind: str) -> float:
        """Draw it and all below it; the middle of its box."""
        begin = self.next_y
        ends = [
            (self._part(below, x + width + GAP, BRIDGE, "bridge"), x + width + GAP) for below in part.parts.values()
        ]
        ends += [(self._gpu(gpu), self.gpu_x) for gpu in part.gpus]
        height = self.next_y - BETWEEN - begin
        words = part.name if kind == "cpu" else f"bridge {part.name}"
        self.boxes.append(Box(kind, x, begin, width, height, (_short(part.name),), words))
        middle = begin + height / 2
        for y, end in ends:
            self.wires.append(Wire("pcie", f"M{x + width:g} {y:g}H{end:g}"))
        return middle

    def _gpu(self, gpu: Gpu) -> float:
        y = self.next_y
        link = _link(gpu)
        head = " · ".join(filter(None, (_short(gpu.address), link)))
        verdict = self.verdicts.get(gpu.uuid) or self.verdicts.get(gpu.address)
        words = " ".join(filter(None, (gpu.name, gpu.address, gpu.uuid, link)))
        self.boxes.append(Box("gpu", self.gpu_x, y, GPU, ROW - BETWEEN, (_cut(gpu.name), head), words, verdict))
        self.next_y += ROW
        self.rows[gpu.address] = y + (ROW - BETWEEN) / 2
        return self.rows[gpu.address]

    def _switches(self) -> None:
        x, count = self.gpu_x + GPU + GAP, len(self.machine.switches)
        words = f"{count} NVSwitches" if count > 1 else "NVSwitch"
        self.boxes.append(Box("switch", x, 1, SWITCH, self.next_y - BETWEEN - 1, (words,), words))
        for gpu in self.gpus:
            if gpu.nvlink:
                self.wires.append(Wire("nvlink", f"M{self.gpu_x + GPU:g} {self.rows[gpu.address]:g}H{x:g}"))

    def _arc(self, one: float, other: float) -> None:
        x = self.gpu_x + GPU
        self.wires.append(Wire("nvlink", f"M{x:g} {one:g}C{x + ARC:g} {one:g} {x + ARC:g} {other:g} {x:g} {other:g}"))

    def _words(self) -> str:
        told = [f"{root.name}: {', '.join(gpu.address for gpu in _below(root))}" for root in self.roots]
        if self.machine.switches:
            told.append(f"{len(self.machine.switches)} NVSwitch")
        told += [f"NVLink between {one} and {other}" for one, other in self.links]
        return "; ".join(told)


def _tree(gpus: Iterable[Gpu]) -> list[_Part]:
    roots: dict[str, _Part] = {}
    for gpu in gpus:
        name = "CPU" if gpu.numa_node is None else f"CPU {gpu.numa_node}"
        part = roots.setdefault(name, _Part(name))
        for bridge in gpu.bridges:
            part = part.parts.setdefault(bridge, _Part(bridge))
        part.gpus.append(gpu)
    return [root.simplified() for root in sorted(roots.values(), key=lambda r: (len(r.name), r.name))]


def _below(part: _Part) -> list[Gpu]:
    return [gpu for below in part.parts.values() for gpu in _below(below)] + part.gpus


def _verdicts(checks: Iterable[Check]) -> dict[str, Verdict]:
    """The worst of each subject's measures."""
    found: dict[str, Verdict] = {}
    for measure in _measures(checks):
        for subject in filter(None, (measure.subject, measure.peer)):
            found[subject] = min(found.get(subject, measure.verdict), measure.verdict, key=WORST_FIRST.index)
    return found


def _links(gpus: Sequence[Gpu], checks: Iterable[Check]) -> list[tuple[str, str]]:
    """Addresses of pairs between which a copy was faster than their slots can carry: that is NVLink."""
    by_uuid: Mapping[str, Gpu] = {gpu.uuid: gpu for gpu in gpus if gpu.uuid and gpu.nvlink}
    found = set()
    for measure in _measures(checks):
        one, other = by_uuid.get(measure.subject), by_uuid.get(measure.peer)
        if one and other and measure.unit == "GB/s" and measure.value > BEYOND_PCIE * min(_most(one), _most(other)):
            found.add((min(one.address, other.address), max(one.address, other.address)))
    return sorted(found)


def _measures(checks: Iterable[Check]) -> Iterable[Measure]:
    return (measure for check in checks for measure in check.measures)


def _most(gpu: Gpu) -> float:
    """What its slot can carry one way, in GB/s; where that is not known, more than any can."""
    lane = LANE.get(gpu.link_speed_max or 0)
    return lane * (gpu.link_width_max or 16) if lane else 16 * LANE[64.0]


def _link(gpu: Gpu) -> str:
    if not gpu.link_width:
        return ""
    narrow = gpu.link_width_max and gpu.link_width < gpu.link_width_max
    return f"x{gpu.link_width} of x{gpu.link_width_max}" if narrow else f"x{gpu.link_width}"


def _short(address: str) -> str:
    """Nearly every machine has one PCI domain."""
    return address.removeprefix("0000:")


def _cut(name: str) -> str:
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1].rstrip()}…"
