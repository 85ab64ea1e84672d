"""Persistence mode and power limits: what nvidia-smi and systemd say, and what differs from what is asked for."""

from __future__ import annotations

import re
import shlex
from typing import Iterable, NamedTuple, Optional

from .gpustrap_node.pci import parse_address

RECORD = "/var/lib/gpustrap/gpu-power-limits"
QUERY = "pci.bus_id,uuid,name,persistence_mode,power.limit,power.min_limit,power.max_limit"
ASK = ("nvidia-smi", "--query-gpu=" + QUERY, "--format=csv,noheader,nounits")
HEADER = "# Managed by gpustrap (role nvidia_driver); the next apply undoes local changes.\n"
SETS = re.compile(r"nvidia-smi\b.*\s(-pl|--power-limit|-pm|--persistence-mode)\b")


class Gpu(NamedTuple):
    """A GPU as nvidia-smi shows it; watts, None where the board does not say."""

    address: str
    uuid: str
    name: str
    persistence: Optional[bool]
    limit: Optional[float]
    least: Optional[float]
    most: Optional[float]


def parse(text: str) -> list[Gpu]:
    """The answer to `ASK`."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        address = parse_address(fields[0])
        if address and len(fields) == len(QUERY.split(",")):
            mode = {"Enabled": True, "Disabled": False}.get(fields[3])
            found.append(Gpu(address, fields[1], fields[2], mode, *map(watts, fields[4:])))
    return found


def watts(text: str) -> Optional[float]:
    """``350.00``; None for ``[N/A]``, ``[Unknown Error]`` and their like."""
    try:
        return float(text)
    except ValueError:
        return None


def recorded(text: str) -> dict[str, float]:
    """UUID -> the limit before the first of ours, of GPUs that have one of ours."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2 and watts(pair[1]) is not None}


def refused(gpus: Iterable[Gpu], limits: dict[str, int]) -> list[str]:
    """Limits that a board cannot have, each as a sentence."""
    said = []
    for gpu in gpus:
        asked = limits.get(gpu.address)
        if asked is None or gpu.least is None or gpu.most is None or gpu.least <= asked <= gpu.most:
            continue
        said.append("%s (%s) takes %.0f to %.0f W, not %d" % (gpu.name, gpu.address, gpu.least, gpu.most, asked))
    return said


def unsettable(gpus: Iterable[Gpu], limits: dict[str, int]) -> list[str]:
    """GPUs whose limit cannot be set at all: laptops' boards, and others whose firmware does not let it."""
    return ["%s (%s)" % (g.name, g.address) for g in gpus if g.address in limits and None in (g.limit, g.least, g.most)]


def off(gpus: Iterable[Gpu], persistence: bool, limits: dict[str, int], before: dict[str, float]) -> list[str]:
    """What is not as asked for, each as a sentence: the boot's program has to run."""
    said = []
    for gpu in gpus:
        asked = limits.get(gpu.address)
        if persistence and gpu.persistence is False:
            said.append("%s: persistence mode is off" % gpu.address)
        if asked is not None and None not in (gpu.limit, gpu.least, gpu.most) and abs((gpu.limit or 0) - asked) >= 1:
            said.append("%s: its power limit is %.0f W, not %d" % (gpu.address, gpu.limit or 0, asked))
        if asked is None and gpu.uuid in before:
            said.append("%s: its power limit is to be %.0f W again" % (gpu.address, before[gpu.uuid]))
    return said


def persistenced_dropin(unit: str, group: str) -> str:
    """A drop-in for the packages' own nvidia-persistenced.service: the same command, with persistence mode.

    Ubuntu's unit has ``--no-persistence-mode``. Where a group alone may open the device files, the daemon needs it.

    Args:
        unit: Text of the unit file; one without a command gets no drop-in.
        group: That group, or empty.
    """
    commands = re.findall(r"^ExecStart=[-@:+!]*(.+)$", unit, re.MULTILINE)
    if not commands:
        return ""
    words = [w for w in shlex.split(commands[-1]) if w not in ("--persistence-mode", "--no-persistence-mode")]
    words += ["--persistence-mode", *(["--group", group] if group else [])]
    return HEADER + "[Service]\nExecStart=\nExecStart=%s\n" % " ".join(shlex.quote(w) for w in words)


def blocks(shown: str) -> dict[str, dict[str, str]]:
    """``systemctl show`` of several units -> unit -> property -> value."""
    found = {}
    for block in shown.strip().split("\n\n"):
        pairs = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        found[pairs.get("Id", "")] = pairs
    return found


def rivals(texts: dict[str, str]) -> list[str]:
    """Unit files of somebody else that set what we set, each with its line."""
    return ["%s: %s" % (path, found.group(0).strip()) for path, text in texts.items() for found in _set(text)]


def _set(text: str) -> Iterable[re.Match[str]]:
    return (m for m in re.finditer(r"^\s*Exec\w+=.*$", text, re.MULTILINE) if SETS.search(m.group(0)))
