"""What nvidia-smi changes: persistence mode, power limit, MIG mode, and the reset of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import store
from .state import WORDS, SmiError, chosen, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from .state import Machine

    Gpu = dict[str, str]

MODES = {"0": "0", "1": "1", "DISABLED": "0", "ENABLED": "1"}
SWITCHED = {"0": "Disabled", "1": "Enabled"}
DONE = "All done."
EARLY = "Terminating early due to previous errors."
WARNING = (
    "\nWarning: persistence mode is disabled on device {}. See the Known Issues section of the nvidia-smi(1) man page "
    "for more information. Run with [--help | -h] switch to get more information on how to enable persistence mode."
)
IN_USE = (
    "{count} {are} currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "
    "graphics application such as an X server, or a monitoring application such as another instance of nvidia-smi). "
    "Please first kill all processes using {these} and all compute applications running in the system.\n"
)
HELD = (
    "{} is currently being used by one or more other processes (e.g. CUDA application or a monitoring application such "
    "as another instance of nvidia-smi). Please first kill all processes using the device and retry the command or "
    "reboot the system to make MIG mode effective."
)
# What a reset ends, and what of the GPU is new after it. A GPU that is lost takes a reboot.
HEALED = ("xid", "ecc-corrected", "ecc-uncorrected", "ecc-pending", "remap-pending", "retired-pending", "gsp-timeout")
FRESH = {"recovery": "0", "remap_pending": "0", "retired_pending": "0", "ecc_cor_vol": "0", "ecc_unc_vol": "0"}
PENDING = {"ecc": "ecc_pending", "mig": "mig_pending"}


class RefusedError(Exception):
    """A GPU cannot be changed so; the exit code is NVML's. What is not supported is a warning and goes on."""

    def __init__(self, words: str, code: int = 2) -> None:
        super().__init__(words)
        self.code = code


def change(machine: Machine, options: dict[str, str]) -> str:
    """Change GPUs and tell how it went.

    Raises:
        SmiError: It cannot be done; the GPUs before the one that refused have been changed.
    """
    wanted = [option for option in CHANGES if option in options]
    if len(wanted) > 1:
        words = "Invalid combination of input arguments. Only one device modification may be done at a time.\n"
        raise SmiError(2, words)
    gpus = chosen(machine, options.get("-i", ""))
    lines: list[str] = []
    for gpu in gpus:
        try:
            lines += CHANGES[wanted[0]](gpu, options[wanted[0]])
        except RefusedError as error:
            lines.append(str(error))
            if error.code != 3:
                raise SmiError(error.code, "\n".join([*lines, EARLY])) from error
            lines.append("Treating as warning and moving on.")
    return "\n".join([*lines, DONE])


def _mode(what: str, value: str) -> str:
    mode = MODES.get(value.upper())
    if mode is None:
        raise RefusedError(f"Invalid {what}: {value}")
    return mode


def _persistence(gpu: Gpu, value: str) -> list[str]:
    mode, bus = _mode("persistence mode", value), gpu["bus_id"]
    if gpu["persistence"] == mode:
        return [f"Persistence mode is already {SWITCHED[mode]} for GPU {bus}."]
    if not store.may():
        raise RefusedError(f"Unable to set persistence mode for GPU {bus}: {WORDS[4]}", 4)
    store.put(int(gpu["index"]), {"persistence": mode})
    return [f"{SWITCHED[mode]} persistence mode for GPU {bus}."]


def _power(gpu: Gpu, value: str) -> list[str]:
    bus = gpu["bus_id"]
    try:
        watts = float(value)
    except ValueError:
        words = f"ERROR: Option {value} is invalid for -pl. Please run 'nvidia-smi -h' for help.\n"
        raise SmiError(2, words) from None
    if not gpu.get("power_limit", "!3").isdecimal():
        raise RefusedError(f"Changing power management limit is not supported for GPU: {bus}.", 3)
    least, most, now = (int(gpu[key]) / 1000 for key in ("power_min", "power_max", "power_limit"))
    if not least <= watts <= most:
        raise RefusedError(
            f"Provided power limit {watts:.2f} W is not a valid power limit which should be between {least:.2f} W and "
            f"{most:.2f} W for GPU {bus}"
        )
    if not store.may():
        raise RefusedError(f"Failed to set power management limit for GPU {bus}: {WORDS[4]}", 4)
    store.put(int(gpu["index"]), {"power_limit": str(int(watts * 1000))})
    return [f"Power limit for GPU {bus} was set to {watts:.2f} W from {now:.2f} W.", *_forgetful(gpu)]


def _mig(gpu: Gpu, value: str) -> list[str]:
    mode, bus = _mode("MIG Mode", value), gpu["bus_id"]
    able = "enable" if mode == "1" else "disable"
    problem = 3 if "mig" not in gpu else 4 if not store.may() else 0
    if not problem and any(key.startswith("gi_") for key in gpu):
        problem = 19
    if problem:
        words = "Not Supported" if problem == 3 else WORDS[problem]
        raise RefusedError(f"Unable to {able} MIG Mode for GPU {bus}: {words}", problem)
    if gpu["architecture"] == "Ampere" and store.clients(gpu):  # it takes a reset; newer ones do without
        store.put(int(gpu["index"]), {"mig_pending": mode})
        return [f"Warning: MIG mode is in pending {able} state for GPU {bus}:{WORDS[19]}", HELD.format(bus)]
    store.put(int(gpu["index"]), {"mig": mode, "mig_pending": mode}, ("mig",))
    return [f"{SWITCHED[mode]} MIG Mode for GPU {bus}", *_forgetful(gpu)]


def _forgetful(gpu: Gpu) -> list[str]:
    return [] if gpu["persistence"] == "1" else [WARNING.format(gpu["bus_id"])]


def reset(machine: Machine, wanted: str) -> str:
    """``-r``: also of a GPU that does not answer.

    Raises:
        SmiError: A program holds one, this user may not, or there is none.
    """
    gpus = named(machine, wanted)
    if not store.may():
        raise SmiError(4, "Unable to reset GPU {}: {}".format(gpus[0]["bus_id"], WORDS[4]))
    held = [gpu for gpu in gpus if store.clients(gpu)]
    if held:
        one = len(held) == 1
        count, are, these = (
            str(len(held)),
            "device is" if one else "devices are",
            "this device" if one else "these devices",
        )
        lines = ["The following GPUs could not be reset:"]
        lines += ["  GPU {}: {}".format(gpu["bus_id"], WORDS[19]) for gpu in held]
        raise SmiError(255, "\n".join([*lines, "", IN_USE.format(count=count, are=are, these=these)]))
    lines = []
    for gpu in gpus:
        if gpu.get("return") == "15":
            raise SmiError(15, "Unable to reset GPU {}: {}".format(gpu["bus_id"], WORDS[15]))
        values: dict[str, str | None] = {key: value for key, value in FRESH.items() if key in gpu}
        values.update((key, gpu[source]) for key, source in PENDING.items() if key in gpu)
        values.update({"xid": None, "slow": None, "return": None})
        store.put(int(gpu["index"]), values, HEALED)
        lines.append("GPU {} was successfully reset.".format(gpu["bus_id"]))
    return "\n".join([*lines, DONE])


CHANGES: dict[str, Callable[[Gpu, str], list[str]]] = {"-pm": _persistence, "-pl": _power, "-mig": _mig}
