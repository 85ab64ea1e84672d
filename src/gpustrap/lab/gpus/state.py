"""What a machine shows, as one small text file that nvml.c and nvidia-smi read at every call.

``key=value`` about the machine, ``N.key=value`` about the GPU with NVML's index N. A key that is missing is not
supported by the board; a value ``!N`` is NVML's return code N instead of a value. Power in mW, memory in MiB.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from gpustrap.lab.gpus.links import instances, links
from gpustrap.lab.gpus.machine import Driver, Fault, Gpu, Machine, Setting, inject, machine

GPU_IDLE, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x1, 0x8, 0x20, 0x40, 0x80  # nvmlClocksEventReasons
# What NVIDIA says is to be done after an Xid: nvmlDeviceGpuRecoveryAction_t. Of the others: nothing.
RECOVERY = {"48": 1, "64": 1, "74": 1, "79": 2, "95": 1, "119": 1, "120": 1, "140": 1}


def text(there: Machine) -> str:
    """The state file."""
    lines = [f"{key}={value}" for key, value in _machine(there).items()]
    lines += [f"fault={one.kind} {one.gpu} {one.value}".rstrip() for one in there.faults]
    for index, (at, gpu) in enumerate(there.bound()):
        values = _healthy(there, at, gpu, index) | _set(there, at) | _broken(there, at, gpu)
        lines += [f"{index}.{key}={value}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def write(path: Path, there: Machine) -> None:
    """Write the state file in one step; readers see the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text(there), encoding="ascii")
    new.chmod(0o644)
    os.replace(new, path)  # noqa: PTH105 - the old inode must go in one step


def parse(words: str) -> Machine:
    """The machine that a state file was written from, with what was set on it since."""
    pairs = [line.split("=", 1) for line in words.splitlines() if "=" in line]
    values = {key: value for key, value in pairs if key != "fault"}
    running = None
    if values["library"]:
        running = Driver(values["real_module"], values["library"], values["cuda"], values["flavour"])
    found = replace(machine(values["profile"], running, values["seed"]), nouveau="nouveau" in values)
    for key, value in pairs:
        if key == "fault":
            kind, gpu, amount = (*value.split(" ", 2), "")[:3]
            found = inject(found, Fault(kind, int(gpu), amount))
    return replace(found, settings=_changed(found, values))


def _changed(there: Machine, values: dict[str, str]) -> tuple[Setting, ...]:
    """The lines of GPUs that nvidia-smi or NVML wrote: those that the machine alone would not have."""
    found = []
    for index, (at, gpu) in enumerate(there.bound()):
        alone = _healthy(there, at, gpu, index) | _broken(there, at, gpu)
        lines = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{index}.")}
        found += [Setting(at, key, value) for key, value in lines.items() if value != str(alone.get(key))]
    return tuple(found)


def _machine(there: Machine) -> dict[str, object]:
    driver = there.driver or Driver("", "", "", "")
    mismatch = there.fault("version-mismatch")
    found: dict[str, object] = {
        "simulated": 1,
        "profile": there.profile,
        "seed": there.seed,
        "module": mismatch or driver.module,
        "real_module": driver.module,
        "library": driver.library,
        "cuda": driver.cuda,
        "flavour": driver.flavour,
        "count": len(there.bound()),
    }
    if there.nouveau:
        found["nouveau"] = 1
    if (code := there.fault("nvml-error")) is not None:
        found["init"] = f"!{code}"
    if (code := there.fault("cuda-error")) is not None:
        found["cuda_init"] = code
    return found


def healthy(gpu: Gpu, index: int, driver: Driver | None) -> dict[str, object]:
    """The state of a GPU that idles and has nothing wrong."""
    row = gpu.board.data
    power, clocks, bus = row["power"], row["clocks"], gpu.address.split(":")[1]
    vendor, subsystem = row["subsystem"].split(":")
    active = clocks["memory_idle"] == clocks["memory_max"]  # HBM boards stay in P0
    bar1 = row["bars"].get(1) or row["bars"].get(2)
    found: dict[str, object] = {
        "name": row["name"],
        "brand": row["brand"],
        "architecture": row["architecture"],
        "uuid": gpu.uuid,
        "minor": index,
        "bus_id": f"0000{gpu.address}".upper(),
        "device_id": f"0x{row['device']}10DE".upper().replace("X", "x"),
        "subsystem_id": f"0x{subsystem}{vendor}".upper().replace("X", "x"),
        "class": row["class"],
        "board_id": f"0x{int(bus, 16) << 8:x}",
        "vbios": row["vbios"],
        "compute": row["compute"],
        "sms": row["sms"],
        "memory_bus": row["memory_bus"],
        "memory_total": row["memory"],
        "memory_reserved": row["reserved"],
        "memory_used": 1,
        "bar1_total": bar1,
        "bar1_used": 1,
        "gen": row["gen"] if active else 1,
        "gen_max": row["gen"],
        "gen_host": row["gen"],
        "width": gpu.width,
        "width_max": row["width"],
        "replays": 0,
        "pstate": 0 if active else 8,
        "power_draw": power["idle"] * 1000,
        "power_limit": power["default"] * 1000,
        "power_default": power["default"] * 1000,
        "power_min": power["min"] * 1000,
        "power_max": power["max"] * 1000,
        "clock_graphics": clocks["idle"],
        "clock_memory": clocks["memory_idle"],
        "clock_video": clocks["video_idle"],
        "max_graphics": clocks["max"],
        "max_memory": clocks["memory_max"],
        "max_video": clocks["video_max"],
        "reasons": GPU_IDLE,
        "util": 0,
        "util_memory": 0,
        "persistence": 0,
        "recovery": 0,
    }
    if "fan" in row:
        found["fan"] = row["fan"]
    if gpu.board.can("serial"):
        found["serial"] = str(int(gpu.uuid[4:12], 16)).zfill(13)
    if driver and driver.flavour == "open":
        found["gsp"] = driver.library
    return found | _temperatures(row["temperature"]) | _memory(gpu)


def _temperatures(row: dict[str, int]) -> dict[str, object]:
    found: dict[str, object] = {"temp": row["idle"]}
    for key in ("memory", "shutdown", "slowdown", "max", "max_memory", "target"):
        if row.get(key):
            found[f"temp_{key}"] = row[key]
    return found | {key: value for key, value in row.items() if key.startswith("tlimit")}


def _memory(gpu: Gpu) -> dict[str, object]:
    """ECC, remapped rows, retired pages, MIG: what the board has of it."""
    board = gpu.board
    found: dict[str, object] = {}
    if board.can("ecc"):
        found |= {"ecc": 1, "ecc_pending": 1}
        found |= {f"ecc_{kind}_{counter}": 0 for kind in ("cor", "unc") for counter in ("vol", "agg")}
        found |= {"sram_threshold": 0}
    if board.can("remaps_rows"):
        found |= {"remap_cor": 0, "remap_unc": 0, "remap_pending": 0, "remap_failed": 0}
        found |= {"banks_max": board.data["remaps_rows"], "banks_high": 0}
    if board.can("retires_pages"):
        found |= {"retired_sbe": 0, "retired_dbe": 0, "retired_pending": 0}
    if board.can("mig"):
        found |= {"mig": 0, "mig_pending": 0}
    return found


def _healthy(there: Machine, at: int, gpu: Gpu, index: int) -> dict[str, object]:
    return healthy(gpu, index, there.driver) | {"at": at} | links(there, gpu) | instances(gpu)


def _set(there: Machine, at: int) -> dict[str, object]:
    return {one.key: one.value for one in there.settings if one.gpu == at}


def _broken(there: Machine, at: int, gpu: Gpu) -> dict[str, object]:
    found: dict[str, object] = {}
    for fault in there.faults:
        if fault.gpu == at:
            found |= _effect(fault, gpu)
    return found


def _effect(fault: Fault, gpu: Gpu) -> dict[str, object]:
    """What a fault changes in the state of its GPU."""
    kind, value, row = fault.kind, fault.value, gpu.board.data
    simple: dict[str, dict[str, object]] = {
        "lost": {"return": 15},
        "hung": {"hang": 1},
        "stuck": {"hang": 2},
        "gsp-timeout": {"slow": value, "return": 999, "xid": 119, "recovery": 1},
        "xid": {"xid": value, "recovery": RECOVERY.get(value, 0)},
        "ecc-corrected": {"ecc_cor_vol": value, "ecc_cor_agg": value},
        "ecc-uncorrected": {"ecc_unc_vol": value, "ecc_unc_agg": value},
        "ecc-pending": {"ecc_pending": 0},
        "remap-pending": {"remap_unc": 1, "remap_pending": 1, "recovery": 1, "banks_max": -1, "banks_high": 1},
        "remap-failed": {"remap_unc": 8, "remap_failed": 1, "banks_max": -1, "banks_none": 1},
        "retired-pending": {"retired_dbe": 1, "retired_pending": 1},
        "throttled": {"reasons": HW_SLOWDOWN | POWER_BRAKE, "clock_graphics": row["clocks"]["idle"]},
        "narrow": {"width": value},
        "slow-link": {"gen": value, "gen_load": value},
        "acs": {"iommu": 1},
        "mig": {"mig": 1, "mig_pending": 1},
        "nvlink-down": {"nvlinks_down": value},
        "fabric-pending": {"fabric": "In Progress"},
        "wrong-bit": {"cuda_flip": value},
        "stuck-bit": {"cuda_stuck": value},
        "kernel-hung": {"cuda_hang": 1},
        "kernel-error": {"cuda_launch": value},
        "load-error": {"cuda_load": value},
        "slow": {"cuda_speed": value},
        "p2p-corrupt": {"p2p_corrupt": 1},
    }
    if kind == "hot":
        return _hot(value, row["temperature"])
    if kind == "err":
        return dict.fromkeys(value.split(","), "!999")
    found = dict(simple.get(kind, {}))
    if found.get("banks_max") == -1:
        found["banks_max"] = row["remaps_rows"] - 1
    return found


def _hot(value: str, row: dict[str, int]) -> dict[str, object]:
    """At the slowdown temperature and a degree more, unless told how hot."""
    limit = row.get("slowdown") or row["idle"] + row["tlimit"] - row["tlimit_slowdown"]
    degrees = int(value or limit + 1)
    found: dict[str, object] = {"temp": degrees, "reasons": HW_SLOWDOWN | HW_THERMAL | SW_THERMAL}
    if "tlimit" in row:
        found["tlimit"] = row["tlimit"] + row["idle"] - degrees
    return found
