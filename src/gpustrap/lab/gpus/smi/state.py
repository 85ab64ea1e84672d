"""Reads the state file of a simulated machine, and makes out of a GPU's lines what nvidia-smi prints.

A value in ``tree.txt`` and ``fields.txt`` is ``key``, ``key:kind``, ``key?constant`` (where the key is there) or
``=constant``; ``=@`` is what nvidia-smi says of something it no longer tells.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PATH = "/run/lab-gpu/state"
LIBRARY = "/usr/lib/{}-linux-gnu/libnvidia-ml.so.1".format(os.uname().machine)
GONE = "N/A"
OLD = "Requested functionality has been deprecated"
WORDS = {
    2: "Invalid Argument",
    3: GONE,
    4: "Insufficient Permissions",
    6: "Not Found",
    15: "GPU is lost",
    16: "GPU requires reset",
    19: "In use by another client",
    24: "Insufficient Resources",
    999: "Unknown Error",
}
RECOVERY = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")
SWITCH = {"0": "Disabled", "1": "Enabled"}
YES = {"0": "No", "1": "Yes"}


class SmiError(Exception):
    """Ends the program: what it prints, and its exit code."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class Machine:
    """The state file.

    Attributes:
        values: The lines about the machine.
        gpus: The values of every GPU in NVML's order.
    """

    def __init__(self, text: str) -> None:
        pairs = [line.split("=", 1) for line in text.splitlines() if "=" in line]
        self.values = {key: value for key, value in pairs if not key.split(".")[0].isdecimal()}
        self.gpus = [
            {key.split(".", 1)[1]: value for key, value in pairs if key.startswith(f"{index}.")}
            for index in range(int(self.values.get("count", "0")))
        ]

    @property
    def branch(self) -> int:
        """Of the library that nvidia-smi came with."""
        return int(self.values["library"].split(".")[0])


def path() -> Path:
    """Where the state file is."""
    return Path(os.environ.get("LAB_GPU_STATE") or PATH)


def library(there: str) -> str:
    """The version of the library: a package's name of it ends with that, and changes at once when the package does."""
    link = os.environ.get("LAB_GPU_LIBRARY") or ("" if os.environ.get("LAB_GPU_STATE") else LIBRARY)
    try:
        installed = str(Path(link).readlink()).rpartition("libnvidia-ml.so.")[2]
    except OSError:
        return there
    return installed if "." in installed else there


def load() -> Machine:
    """The machine, once NVML is up.

    Raises:
        SmiError: NVML does not start.
    """
    try:
        found = Machine(path().read_text(encoding="ascii"))
    except FileNotFoundError:
        found = Machine("module=")
    values = found.values
    if "init" in values:
        code = int(values["init"][1:])
        raise SmiError(min(255, code), "Failed to initialize NVML: " + WORDS.get(code, WORDS[999]))
    if not values.get("module"):
        raise SmiError(
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n",
        )
    values["library"] = library(values["library"])
    if values["module"] != values["library"]:
        short = ".".join(values["library"].split(".")[:2])
        raise SmiError(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: " + short)
    return found


def chosen(machine: Machine, wanted: str) -> list[dict[str, str]]:
    """The GPUs that ``-i`` names, all without it, each with what follows from its lines.

    Raises:
        SmiError: There is none, or one cannot be reached.
    """
    found = []
    for gpu in named(machine, wanted):
        index = int(gpu["index"])
        while (hang := Machine(path().read_text(encoding="ascii")).gpus[index].get("hang")) is not None:
            if hang == "2":  # stuck in the kernel: a real one would not even be killed
                for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
            time.sleep(1)
        time.sleep(int(gpu.get("slow", "0")))
        if "return" in gpu:
            code = int(gpu["return"])
            lost = "GPU is lost.  Reboot the system to recover this GPU\n\n"
            words = lost if code == 15 else WORDS.get(code, WORDS[999])
            where = "GPU" + gpu["bus_id"][4:]
            raise SmiError(min(255, code), f"Unable to determine the device handle for {where}: {words}")
        found.append(_derived(machine, gpu, index))
    return found


def named(machine: Machine, wanted: str) -> list[dict[str, str]]:
    """The GPUs that ``-i`` names, all without it, whether they answer or not.

    Raises:
        SmiError: There is none.
    """
    names = {name.lower() for name in wanted.split(",") if name}
    found = []
    for index, gpu in enumerate(machine.gpus):
        bus = gpu["bus_id"].lower()
        if not names or {str(index), gpu["uuid"].lower(), bus, bus[4:], bus[9:]} & names:
            found.append(dict(gpu, index=str(index)))
    if not found:
        raise SmiError(6, "No devices were found")
    return found


def _derived(machine: Machine, gpu: dict[str, str], index: int) -> dict[str, str]:
    """A GPU's values with those that other values give."""
    domain, bus, device = gpu["bus_id"].split(":")
    found = dict(
        gpu,
        index=str(index),
        count=str(len(machine.gpus)),
        module=machine.values["module"],
        timestamp=time.strftime("%Y/%m/%d %H:%M:%S.000"),
        pci_domain=domain[4:],
        pci_bus=bus,
        pci_device=device.split(".")[0],
        pci_id=gpu["device_id"][2:],
        pci_subsystem=gpu["subsystem_id"][2:],
        base_class="{:x}".format(int(gpu["class"][:2], 16)),
        sub_class="{:x}".format(int(gpu["class"][2:4], 16)),
        reset_required=YES["1" if gpu["recovery"] == "1" else "0"],
    )
    newer = gpu["architecture"] not in ("Pascal", "Turing")
    found["addressing"] = "HMM" if machine.values["flavour"] == "open" else "None"
    if newer:
        found["power_average"] = gpu["power_draw"]
    if newer and machine.branch >= 535:
        found["sram_detail"] = "1"
    if "retired_sbe" in gpu:
        found["retired_list"] = ""
    if "serial" in gpu:
        found["serial_boost"] = gpu["max_graphics"]
    found["part"] = "{}-{}-A1".format(gpu["device_id"][2:6], "895" if "serial" in gpu else "300")
    found["pdi"] = "0x" + gpu["uuid"].replace("-", "")[-16:]
    found["memory_free"] = _less(gpu, "memory_total", "memory_reserved", "memory_used")
    found["bar1_free"] = _less(gpu, "bar1_total", "bar1_used")
    if "banks_max" in gpu:
        found.setdefault("banks_none", "0")
    if gpu.get("fabric") == "Completed":
        found["fabric_done"] = "1"
    if gpu.get("mig") == "1":  # of the whole GPU nobody knows these then
        found.update(util="!3", util_memory="!3")
        found = {key: value for key, value in found.items() if not key.startswith("remap_")}
    return {**found, **_reasons(gpu["reasons"])}


def _less(gpu: dict[str, str], total: str, *parts: str) -> str:
    for key in (total, *parts):
        if gpu[key].startswith("!"):
            return gpu[key]
    return str(int(gpu[total]) - sum(int(gpu[key]) for key in parts))


def _reasons(text: str) -> dict[str, str]:
    """Every reason to lower the clocks, and for how many microseconds it has been there."""
    found = {}
    for bit in (0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100):
        active = not text.startswith("!") and int(text) & bit
        found[f"reason_{bit:x}"] = text if text.startswith("!") else "Active" if active else "Not Active"
        found[f"us_{bit:x}"] = str(int(time.monotonic() * 1e6) if active else 0)
    return found


def shown(gpu: dict[str, str], term: str, *, xml: bool = False) -> str:
    """What a value of our tables is for a GPU; ``N/A`` where it is not there, NVML's words where it is an error."""
    if term.startswith("="):
        return OLD if term == "=@" else term[1:]
    key, asks, constant = term.partition("?")
    key, _, kind = key.partition(":")
    value = gpu.get(key)
    if value is None:
        return GONE
    if value.startswith("!"):
        return WORDS.get(int(value[1:]), WORDS[999])
    return constant if asks else _formed(value, kind, xml=xml)


def _formed(value: str, kind: str, *, xml: bool) -> str:
    if kind in ("onoff", "yesno"):
        return (SWITCH if kind == "onoff" else YES)[value]
    if kind in ("W", "watt"):
        return "%.2f" % (int(value) / 1000) + (" W" if kind == "W" else "")
    simple = {
        "": value,
        "pct": value + " %",
        "banks": value + " bank(s)",
        "x": value + "x",
        "P": "P" + value,
        "0x": value if xml else "0x" + value,
        "hex": f"0x{int(value):016X}" if kind == "hex" else "",
        "recovery": RECOVERY[int(value)] if kind == "recovery" else "",
    }
    return simple.get(kind, f"{value} {kind}")
