"""What runs of NVIDIA's driver: the loaded module, the GPUs it drives, and the ones that NVML lists."""

from __future__ import annotations

import re

from .host import Host
from .pci import parse_address

PROC = "/proc/driver/nvidia"
SMI = ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi")
LIST = ("nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader")
PATIENCE = 20.0  # seconds; it wakes sleeping GPUs, and hangs on a broken one
NONE = "No devices were found"
LAB = "/run/lab-gpu/state"  # what a node of the lab with simulated GPUs has


def nvidia_facts(host: Host) -> dict[str, object]:
    """The driver as it runs; nothing is loaded to find out, so nvidia-smi is only asked where the module is there."""
    found = loaded(host)
    there = bool(found["module"]) and any(host.exists(path) for path in SMI)
    nvml, error = _nvml(host) if there else (None, "")
    return {**found, "nvml": nvml, "nvml_error": error}


def loaded(host: Host) -> dict[str, object]:
    """The loaded module, and the GPUs it drives."""
    text = host.read(PROC + "/version") or ""
    module = parse_module_version(text)
    bound = [parse_address(name) for name in host.names(PROC + "/gpus")]
    return {
        "module": module,
        "flavour": ("open" if "Open Kernel Module" in text else "proprietary") if module else None,
        "bound": sorted(filter(None, bound)),
        "simulated": "simulated=1" in (host.read(LAB) or "").splitlines(),
    }


def _nvml(host: Host) -> tuple[list[str] | None, str]:
    noted = len(host.notes)
    answer = host.run(LIST, PATIENCE)
    if answer is None:  # too slow, which is noted, or not run at all
        return None, "nvidia-smi gave no answer within %d s" % PATIENCE if host.notes[noted:] else ""
    listed, words = parse_list(answer.stdout)
    if answer.rc != 0:
        words = words or " ".join(answer.stderr.split()) or "nvidia-smi ended with %d" % answer.rc
    gave = listed or answer.rc == 0 or NONE in words
    return (listed if gave else None), words[:500]


def parse_list(text: str) -> tuple[list[str], str]:
    """The PCI addresses in nvidia-smi's list, sorted, and whatever else it said."""
    lines = [line.strip() for line in text.splitlines()]
    found = {line: parse_address(line) for line in lines}
    return sorted(filter(None, found.values())), " ".join(line for line in lines if not found[line]).strip()


def parse_module_version(text: str) -> str:
    """The version in /proc/driver/nvidia/version, of the proprietary or the open module."""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return found.group(1) if found else ""
