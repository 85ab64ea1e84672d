"""The table, and ``-L``."""

from __future__ import annotations

from .mig import devices
from .query import now
from .state import Machine, shown

NAME = 27


def listing(gpus: list[dict[str, str]]) -> str:
    """``-L``."""
    lines = []
    for gpu in gpus:
        lines.append("GPU {}: {} (UUID: {})".format(gpu["index"], gpu["name"], gpu["uuid"]))
        for at, one in enumerate(devices(gpu)):
            lines.append(f"  {'MIG ' + one.profile.name:<15} Device {at:>2}: (UUID: {one.uuid})")
    return "\n".join(lines)


def table(machine: Machine, gpus: list[dict[str, str]]) -> str:
    """What nvidia-smi prints when it is asked nothing."""
    branch = machine.branch
    wide = 24 if branch >= 545 else 22  # the column of bus and memory
    whole = 41 + wide + 22 + 2
    rule = "+" + "-" * 41 + "+" + "-" * wide + "+" + "-" * 22 + "+"
    lines = [now() + "       ", "+" + "-" * whole + "+", "|" + _head(machine, wide).ljust(whole) + "|"]
    lines.append(rule if branch >= 555 else "|" + rule[1:])
    lines += [
        "| GPU  Name                 Persistence-M |%s | Volatile Uncorr. ECC |"
        % (" Bus-Id".ljust(wide - 7) + "Disp.A"),
        "| Fan  Temp   Perf          Pwr:Usage/Cap |{} | GPU-Util  Compute M. |".format("Memory-Usage".rjust(wide - 1)),
        "|{}|{}|               MIG M. |".format(" " * 41, " " * wide),
        "|" + rule[1:-1].replace("-", "=") + "|",
    ]
    for gpu in gpus:
        lines += [*_rows(gpu, wide), rule]
    line = "+" + "-" * whole + "+"
    if any(gpu.get("mig") == "1" for gpu in gpus):
        lines += ["", line, "|{}|".format(" MIG devices:".ljust(whole)), *_mig(gpus, whole, branch)]
    far = " " * (8 if branch >= 555 else 2)  # the column of process ids grew
    lines += [
        "" if branch >= 555 else " " * 89,
        line,
        "|{}|".format(" Processes:".ljust(whole)),
        f"|{f'  GPU   GI   CI      {far}PID   Type   Process name'.ljust(whole - 11)}GPU Memory |",
        "|%s|" % ("        ID   ID".ljust(whole - 11) + "Usage      "),
        "|" + "=" * whole + "|",
        "|{}|".format("  No running processes found".ljust(whole)),
        line,
    ]
    return "\n".join(lines)


def _mig(gpus: list[dict[str, str]], whole: int, branch: int) -> list[str]:
    """The part about MIG devices; its columns and their heads have changed with the branches."""
    wide, newer = whole - 55, branch >= 555  # 34, or 32 before the column of memory grew
    rule = "+" + "-" * 18 + "+" + "-" * wide + "+" + "-" * 11 + "+" + "-" * 23 + "+"
    rows = []
    for gpu in gpus:
        for at, one in enumerate(devices(gpu)):
            use = one.profile
            memory, bar1 = f"1MiB / {use.memory:>5}MiB", f"0MiB / {use.bar1:>5}MiB"
            far, near = 2 if wide == 32 else 4, 4 if newer else 2  # blanks behind them
            first = f"|{gpu['index']:>3}{one.id:>5}{0:>4}{at:>4}  |{memory.rjust(wide - far).ljust(wide)}|"
            engines = f"{use.ce:>3}{use.enc:>4}{use.dec:>5}{use.ofa:>5}{use.jpg:>5} |"
            rows += [
                f"{first}{use.sm:>3}{0:>7} |{engines}",
                f"|{'':18}|{bar1.rjust(wide - near).ljust(wide)}|{'':11}|{'':23}|",
                rule,
            ]
    if not rows:
        line = "+" + "-" * whole + "+"
        return [line, "|{}|".format("  No MIG devices found".ljust(whole)), line]
    shared = "Shared " if newer else ""
    heads = ("        Shared", " CE ENC  DEC  OFA  JPG") if newer else ("      Shared", " CE ENC DEC OFA JPG")
    return [
        rule,
        f"| GPU  GI  CI  MIG |{shared + 'Memory-Usage ':>{wide}}|        Vol|{heads[0]:<23}|",
        f"|      ID  ID  Dev |{shared + 'BAR1-Usage ':>{wide}}| SM     Unc|{heads[1]:<23}|",
        f"|{'':18}|{'':{wide}}|        ECC|{'':23}|",
        "|" + rule[1:-1].replace("-", "=") + "|",
        *rows,
    ]


def _head(machine: Machine, wide: int) -> str:
    values = machine.values
    module, cuda = values["module"], values["cuda"]
    start = " NVIDIA-SMI " + values["library"].ljust(23)
    if machine.branch >= 610:
        return start + "KMD Version: " + module.ljust(14) + "CUDA UMD Version: " + cuda
    return start + "Driver Version: " + module.ljust(wide - 9) + "CUDA Version: " + cuda


def _cell(gpu: dict[str, str], key: str, unit: str = "") -> str:
    """A value in a table: short, and ERR! where NVML gave an error."""
    value = shown(gpu, key)
    if value == "N/A":
        return value
    return "ERR!" if gpu[key].startswith("!") else value + unit


def _watt(gpu: dict[str, str], key: str) -> str:
    value = _cell(gpu, key)
    return str(int(value) // 1000) + "W" if value.isdecimal() else value


def _rows(gpu: dict[str, str], wide: int) -> list[str]:
    name = gpu["name"] if len(gpu["name"]) <= NAME else gpu["name"][: NAME - 3] + "..."
    on = gpu.get("mig") == "1"
    mig = shown(gpu, "mig:onoff")
    ecc = "On" if on else _cell(gpu, "ecc_unc_vol")
    used, total = _cell(gpu, "memory_used", "MiB"), _cell(gpu, "memory_total", "MiB")
    draw, limit = (16, 6) if wide == 24 else (17, 5)
    power = "{} /{}".format(_watt(gpu, "power_draw").rjust(draw), _watt(gpu, "power_limit").rjust(limit))
    first, second = (11, 9) if wide == 24 else (10, 8)
    return [
        "|{}  {}    {} |{} Off |{} |".format(
            gpu["index"].rjust(4),
            name.ljust(NAME),
            ("On" if gpu["persistence"] == "1" else "Off").ljust(3),
            gpu["bus_id"].rjust(wide - 5),
            ecc.rjust(21),
        ),
        "|{}{}{}{} |{} / {} |{}{} |".format(
            _cell(gpu, "fan", "%").rjust(4),
            _cell(gpu, "temp", "C").rjust(6),
            ("P" + _cell(gpu, "pstate")).rjust(6),
            power,
            used.rjust(first),
            total.rjust(second),
            _cell(gpu, "util", "%").rjust(8),
            "Default".rjust(13),
        ),
        "|{}|{}|{} |".format(" " * 41, " " * wide, mig.rjust(21)),
    ]
