"""``--query-gpu=… --format=csv``."""

from __future__ import annotations

import pkgutil
from functools import lru_cache

from .state import GONE, OLD, WORDS, Machine, SmiError, shown

SHORT = {
    "gpu_name": "name",
    "gpu_serial": "serial",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "clocks.gpu": "clocks.current.graphics",
}


class Field:
    """A row of ``fields.txt``."""

    def __init__(self, row: str) -> None:
        name, unit, term, *branches = (part.strip() for part in row.split("|"))
        self.name, self.unit = name, unit
        self.bare, self.term = term.endswith("!"), term.rstrip("!")
        self.branches = branches[0] if branches else ""

    @property
    def head(self) -> str:
        """What the first line says."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def value(self, gpu: dict[str, str], *, units: bool) -> str:
        """What a GPU's line says; what is missing or an error is in brackets."""
        value = shown(gpu, self.term)
        if value == GONE and self.bare:
            return value
        if value in WORDS.values() or value == OLD:
            return f"[{value}]"
        return f"{value} {self.unit}" if self.unit and units else value


def in_branches(text: str, branch: int) -> bool:
    """Whether a branch is in a range ``A-B`` of our tables."""
    first, _, last = text.partition("-")
    return int(first or 0) <= branch <= int(last or 9999)


def text_of(name: str) -> str:
    """One of our tables."""
    data = pkgutil.get_data(__package__, name)
    assert data is not None  # noqa: S101 - it is in the archive
    return data.decode("utf-8")


@lru_cache(maxsize=None)
def fields(branch: int) -> dict[str, Field]:
    """The fields of a branch by name."""
    rows = (Field(line) for line in text_of("fields.txt").splitlines() if line and not line.startswith("#"))
    return {row.name: row for row in rows if in_branches(row.branches, branch)}


def query(machine: Machine, gpus: list[dict[str, str]], names: str, form: str) -> str:
    """The answer.

    Raises:
        SmiError: A field or the format is not known.
    """
    known = fields(machine.branch)
    words = [word.strip() for word in form.split(",")]
    if "csv" not in words:
        raise SmiError(2, "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n")
    wanted = []
    for given in names.split(","):
        name = given.strip()
        name = SHORT.get(name, name).replace("clocks_throttle_reasons.", "clocks_event_reasons.")
        if name not in known:
            raise SmiError(2, f'Field "{given.strip()}" is not a valid field to query.\n')
        wanted.append(known[name])
    lines = [] if "noheader" in words else [", ".join(field.head for field in wanted)]
    units = "nounits" not in words
    return "\n".join(lines + [", ".join(field.value(gpu, units=units) for field in wanted) for gpu in gpus])
