"""nvidia-container-cli, simulated: ``info``, and the ways in which the real one fails.

Runs on the node's own Python (3.10 or newer), by itself. The messages are those of NVIDIA/libnvidia-container.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence
from pathlib import Path

VERSION = "@version@"
PROC = Path("/proc/driver/nvidia/version")
STATE = Path("/run/lab-gpu/state")
MISSING = "libnvidia-ml.so.1: cannot open shared object file: no such file or directory"
ERRORS = {9: "driver not loaded", 18: "driver/library version mismatch"}  # nvmlReturn_t
FIELDS = {
    "Device Minor:   ": "minor",
    "Model:          ": "name",
    "Brand:          ": "brand",
    "GPU UUID:       ": "uuid",
    "Bus Location:   ": "bus_id",
    "Architecture:   ": "compute",
}


def fail(words: str) -> SystemExit:
    """End as the real one does."""
    sys.stderr.write(f"nvidia-container-cli: {words}\n")
    return SystemExit(1)


def initialize() -> None:
    """NVML answers, or why it does not."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise fail(f"initialization error: load library failed: {MISSING}") from None
    code = library.nvmlInit_v2()
    if code:
        raise fail(f"initialization error: nvml error: {ERRORS.get(code, 'unknown error')}")


def info() -> str:
    """The driver and its GPUs."""
    initialize()
    found = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", PROC.read_text(encoding="ascii"))
    lines = STATE.read_text(encoding="ascii").splitlines()
    values = {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}
    told = [f"NVRM version:   {found.group(1) if found else ''} (simulated)", f"CUDA version:   {values['cuda']}"]
    for index in range(int(values["count"])):
        told += ["", f"Device Index:   {index}"]
        told += [f"{words}{values.get(f'{index}.{key}', '(null)')}" for words, key in FIELDS.items()]
    return "\n".join([*told, ""])


def main(words: Sequence[str]) -> None:
    """Answer one call."""
    if list(words) == ["--version"]:
        sys.stdout.write(f"cli-version: {VERSION} (simulated)\n")
    elif list(words[-1:]) == ["info"]:
        sys.stdout.write(info())
    else:
        raise fail("simulated: this stand-in knows only info")


if __name__ == "__main__":
    main(sys.argv[1:])
