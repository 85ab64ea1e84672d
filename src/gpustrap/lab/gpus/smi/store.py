"""Changes the state file as a driver changes its GPUs: as root, in one step, gone at the next boot."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .state import path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NO_PERMISSION = 4
# What holds a GPU without being a program that computes: its name in /proc, cut off there after 15 letters.
DAEMONS = {"nvidia-persiste", "nv-fabricmanage", "nv-hostengine"}
LIBRARIES = ("libnvidia-ml.so", "libcuda.so")


def may() -> bool:
    """Whether this user may change GPUs."""
    return os.geteuid() == 0


def put(index: int, values: Mapping[str, str | None], healed: tuple[str, ...] = ()) -> None:
    """Change lines of a GPU.

    Args:
        index: NVML's index of the GPU.
        values: The values by key; None takes a line away.
        healed: Kinds of faults of that GPU that end with it.
    """
    state = path()
    with Path(f"{state}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = state.read_text(encoding="ascii").splitlines()
        at = next((line.split("=")[1] for line in lines if line.startswith(f"{index}.at=")), "")
        gone = tuple(f"fault={kind} {at}" for kind in healed)
        mine = {f"{index}.{key}": value for key, value in values.items()}
        kept = [line for line in lines if line.split("=")[0] not in mine and not _is(line, gone)]
        kept += [f"{key}={value}" for key, value in mine.items() if value is not None]
        new = Path(f"{state}.{os.getpid()}")
        new.write_text("\n".join(kept) + "\n", encoding="ascii")
        new.chmod(0o644)
        new.replace(state)


def _is(line: str, faults: tuple[str, ...]) -> bool:
    return any(line == fault or line.startswith(fault + " ") for fault in faults)


def clients(gpu: Mapping[str, str]) -> list[str]:
    """The programs that hold a GPU: those with a library of the driver loaded, and its daemons."""
    return sorted(set(_clients(gpu)))


def _clients(gpu: Mapping[str, str]) -> Iterator[str]:
    for process in Path(os.environ.get("LAB_GPU_PROC") or "/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
            maps = (process / "maps").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended, or is the kernel's
            continue
        held = name in DAEMONS and (name != "nvidia-persiste" or gpu["persistence"] == "1")
        if held or any(library in maps for library in LIBRARIES):
            yield name
