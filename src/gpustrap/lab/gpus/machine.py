"""A simulated machine: its boards, the driver that runs on it, and what is wrong with it."""

from __future__ import annotations

import uuid
from ast import literal_eval
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from gpustrap.lab.gpus import faults

UUIDS = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562's name space for OIDs, no one's GPUs


class GpuError(ValueError):
    """What was asked for does not exist in simulated hardware."""


@dataclass(frozen=True, slots=True)
class Board:
    """A row of boards.yml; ``data`` holds the rest of its columns."""

    key: str
    data: dict[str, Any]

    @property
    def architecture(self) -> str:
        """As NVML names it."""
        return str(self.data["architecture"])

    def can(self, feature: str) -> bool:
        """Whether the board has ``ecc``, ``mig``, ``remaps_rows``, ``retires_pages``, ``nvlink`` or ``serial``."""
        return bool(self.data.get(feature))


@dataclass(frozen=True, slots=True)
class Gpu:
    """A board in a slot.

    Attributes:
        address: PCI address as sysfs spells it.
        width: Lanes that the slot gives it.
        switch: Whether a PCIe switch is between it and the processor.
    """

    board: Board
    address: str
    uuid: str
    width: int
    numa: int
    switch: bool


@dataclass(frozen=True, slots=True)
class NvSwitches:
    """The NVSwitches of a machine: PCI bridges of class 0680."""

    device: str
    subsystem: str
    addresses: tuple[str, ...]
    gen: int
    width: int


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver as it runs.

    Attributes:
        module: Version of the loaded kernel module; empty where none is.
        library: Version of the user-space libraries.
        cuda: What the library brings, ``13.0``.
        flavour: ``open`` or ``proprietary``.
    """

    module: str
    library: str
    cuda: str
    flavour: str

    @property
    def branch(self) -> int:
        """Of the library, which nvidia-smi and NVML come with."""
        return int(self.library.split(".")[0])


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong.

    Attributes:
        kind: One of `gpustrap.lab.gpus.faults`.
        gpu: The GPU by its number in the profile; -1 for the machine.
        value: How much, which code, which value; the kind's own where empty.
    """

    kind: str
    gpu: int = -1
    value: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a program set on a GPU; lost at the boot.

    Attributes:
        gpu: The GPU by its number in the profile.
        key: Of its line in the state file.
    """

    gpu: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A profile with a driver and faults.

    Attributes:
        settings: What was set while it runs.
        nouveau: Whether the kernel's own driver has taken the GPUs.
    """

    profile: str
    seed: str
    gpus: tuple[Gpu, ...]
    nvswitches: NvSwitches | None
    driver: Driver | None
    faults: tuple[Fault, ...] = ()
    nouveau: bool = False
    settings: tuple[Setting, ...] = ()

    def fault(self, kind: str, gpu: int = -1) -> str | None:
        """The value of a fault that is there."""
        for fault in self.faults:
            if (fault.kind, fault.gpu) == (kind, gpu):
                return fault.value
        return None

    def present(self) -> tuple[tuple[int, Gpu], ...]:
        """The GPUs on the PCI bus, with their numbers in the profile."""
        return tuple((at, gpu) for at, gpu in enumerate(self.gpus) if self.fault("missing", at) is None)

    def bound(self) -> tuple[tuple[int, Gpu], ...]:
        """The GPUs that the loaded module drives: those that NVML lists."""
        driver = self.driver
        if driver is None or not driver.module:
            return ()
        branch = int(driver.module.split(".")[0])
        return tuple((at, gpu) for at, gpu in self.present() if drives(gpu.board, branch, driver.flavour))


@cache
def data(name: str) -> dict[str, Any]:
    """One of our data files. On a node, where there is no YAML, they come as Python literals."""
    ready = files(__package__) / f"{name}.txt"
    if ready.is_file():
        found = literal_eval(ready.read_text(encoding="utf-8"))
    else:
        import yaml  # noqa: PLC0415 - a node has none

        found = yaml.safe_load((files(__package__) / f"{name}.yml").read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise TypeError(f"{name}.yml is no mapping")
    return found


def profiles() -> tuple[str, ...]:
    """The names of the profiles."""
    return tuple(data("profiles"))


def drives(board: Board, branch: int, flavour: str) -> bool:
    """Whether the module of a branch binds a board."""
    row = data("drivers")["architectures"][board.architecture]
    return bool(row["first"] <= branch <= row.get("last", 9999) and row[flavour])


def driver(branch: str | None = None, flavour: str = "open") -> Driver:
    """A driver of a branch, as it is after a reboot: module and library agree.

    Raises:
        GpuError: There is no such branch or flavour.
    """
    rows = data("drivers")
    row = rows["branches"].get(branch or rows["default"])
    if row is None:
        raise GpuError(f"no driver branch {branch}: {', '.join(rows['branches'])}")
    version = str(row["version"])
    if flavour not in ("open", "proprietary") or (
        flavour == "proprietary" and int(version.split(".", maxsplit=1)[0]) > rows["last_proprietary"]
    ):
        raise GpuError(f"branch {branch} has no {flavour} modules")
    return Driver(version, version, str(row["cuda"]), flavour)


def driver_of(version: str, flavour: str) -> Driver:
    """The driver of a version, whose branch need not be one of ours: then the CUDA of the branch before it."""
    branch, rows = int(version.split(".", maxsplit=1)[0]), data("drivers")["branches"]
    before = max((int(known) for known in rows if int(known) <= branch), default=min(int(known) for known in rows))
    return Driver(version, version, str(rows[str(before)]["cuda"]), flavour)


def machine(profile: str, running: Driver | None = None, seed: str = "lab") -> Machine:
    """A healthy machine.

    Args:
        profile: One of `profiles`.
        running: None for a machine without a driver.
        seed: Makes the UUIDs and serial numbers of two machines differ.

    Raises:
        GpuError: There is no such profile.
    """
    row = data("profiles").get(profile)
    if row is None:
        raise GpuError(f"no GPU profile {profile}: {', '.join(profiles())}")
    gpus = tuple(_gpu(slot, seed) for slot in row["gpus"])
    switches = row.get("nvswitches")
    found = switches and NvSwitches(
        switches["device"],
        switches["subsystem"],
        tuple(f"0000:{bus}:00.0" for bus in switches["buses"]),
        switches["gen"],
        switches["width"],
    )
    return Machine(profile, seed, gpus, found or None, running)


def _gpu(slot: dict[str, Any], seed: str) -> Gpu:
    board = Board(slot["board"], data("boards")[slot["board"]])
    address = f"0000:{slot['bus']}:{slot.get('slot', '00')}.0"
    name = f"GPU-{uuid.uuid5(UUIDS, f'{seed}/{address}')}"
    width = min(slot.get("width", 16), board.data["width"])
    return Gpu(board, address, name, width, slot.get("numa", -1), slot.get("switch", False))


def inject(there: Machine, fault: Fault) -> Machine:
    """The machine with one more fault; the same kind on the same GPU is replaced.

    Raises:
        GpuError: There is no such fault or GPU, or the board cannot have it.
    """
    known, of = (faults.MACHINE, "a machine") if fault.gpu < 0 else (faults.GPU, "a GPU")
    kind = known.get(fault.kind)
    if kind is None:
        raise GpuError(f"no fault {fault.kind} of {of}: {', '.join(known)}")
    if fault.gpu >= len(there.gpus):
        raise GpuError(f"{there.profile} has no GPU {fault.gpu}")
    if kind.needs and not _has(there.gpus[fault.gpu], kind.needs):
        raise GpuError(f"{there.gpus[fault.gpu].board.data['name']} cannot have {fault.kind}")
    if kind.trouble(fault.value):
        raise GpuError(f"fault {fault.kind} {kind.trouble(fault.value)}")
    filled = replace(fault, value=fault.value or kind.value)
    return replace(there, faults=(*clear(there, fault.kind, fault.gpu).faults, filled))


def _has(gpu: Gpu, feature: str) -> bool:
    if feature == "gsp":  # from Turing on; the proprietary modules may do without it
        return gpu.board.architecture != "Pascal"
    if feature == "peers":  # the driver lets no GeForce board into another's memory
        return str(gpu.board.data["brand"]) != "GeForce"
    if feature == "bridge":  # on the root bus, as in virtual machines, there is none above
        return gpu.address[8:10] == "00"
    return gpu.board.can(feature)


def clear(there: Machine, kind: str | None = None, gpu: int | None = None) -> Machine:
    """The machine without the faults of a kind, of a GPU, or without any."""
    return replace(
        there,
        faults=tuple(one for one in there.faults if kind not in (None, one.kind) or gpu not in (None, one.gpu)),
    )
