"""``-q`` as text and, with ``-x``, as XML; both are one tree."""

from __future__ import annotations

import time
from functools import lru_cache
from xml.sax.saxutils import escape

from .csv import in_branches, text_of
from .mig import devices
from .state import Machine, shown

GONE_SOON = "%s [Deprecated; will be removed in CUDA 14.0. Use %s instead]"


class Node:
    """A row of ``tree.txt`` with the rows below it."""

    def __init__(self, depth: int, row: str) -> None:
        columns = [*row.split("|"), "", "", "", ""]
        self.depth = depth
        self.label = columns[1][1:].rstrip() + (" " if columns[1].endswith("  ") else "")  # one of them ends so
        self.tag, _, self.term, self.branches, self.condition = (column.strip() for column in columns[:5])
        self.below: list[Node] = []

    def there(self, gpu: dict[str, str], branch: int) -> bool:
        """Whether this branch prints it for this GPU."""
        condition = self.condition
        met = (condition[1:] not in gpu) if condition.startswith("!") else not condition or condition in gpu
        return met and in_branches(self.branches, branch)


@lru_cache(maxsize=None)
def tree() -> list[Node]:
    """The rows at the top."""
    top: list[Node] = []
    above: list[Node] = []
    for line in text_of("tree.txt").splitlines():
        if not line or line.startswith("#"):
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        node = Node(depth, line.strip("\n").lstrip())
        del above[depth:]
        (above[-1].below if above else top).append(node)
        above.append(node)
    return top


def now() -> str:
    """The time as nvidia-smi writes it."""
    return time.strftime("%a %b %e %H:%M:%S %Y")


def xml(machine: Machine, gpus: list[dict[str, str]]) -> str:
    """The whole document."""
    values, branch = machine.values, machine.branch
    schema = 11 if branch < 525 else 12 if branch < 590 else 13
    lines = [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{schema}.dtd">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{now()}</timestamp>",
        "\t<driver_version>{}</driver_version>".format(values["module"]),
        "\t<cuda_version>{}</cuda_version>".format(values["cuda"]),
    ]
    if branch >= 610:
        lines.append("\t<kmd_version>{}</kmd_version>".format(values["module"]))
        lines.append("\t<cuda_umd_version>{}</cuda_umd_version>".format(values["cuda"]))
    lines.append(f"\t<attached_gpus>{len(machine.gpus)}</attached_gpus>")
    for gpu in gpus:
        bus = gpu["bus_id"]
        lines.append(f'\t<gpu id="{bus}">')
        for node in tree():
            lines += _xml(node, gpu, branch, "\t\t")
        lines.append("\t</gpu>")
    return "\n".join([*lines, "", "</nvidia_smi_log>"])


def _xml(node: Node, gpu: dict[str, str], branch: int, indent: str) -> list[str]:
    if not node.there(gpu, branch):
        return []
    if node.below:
        inner = [line for one in node.below for line in _xml(one, gpu, branch, indent + "\t")]
        return [f"{indent}<{node.tag}>", *inner, f"{indent}</{node.tag}>"]
    if node.tag == "mig_devices" and devices(gpu):
        return [f"{indent}<{node.tag}>", *_mig_xml(mig_rows(gpu, branch), indent), f"{indent}</{node.tag}>"]
    if node.tag in ("mig_devices", "processes", "accounted_processes"):  # lists
        words = [indent + "\t" + node.term[1:]] if node.term[1:] else []
        return [f"{indent}<{node.tag}>", *words, f"{indent}</{node.tag}>"]
    return [f"{indent}<{node.tag}>{escape(shown(gpu, node.term, xml=True))}</{node.tag}>"]


def text(machine: Machine, gpus: list[dict[str, str]]) -> str:
    """The form for people."""
    values, branch = machine.values, machine.branch
    width = 55 if branch >= 555 else 42
    heads = [("Timestamp", now())]
    if branch >= 610:
        heads.append(("Driver Version", GONE_SOON % (values["module"], "KMD Version")))
        heads.append(("CUDA Version", GONE_SOON % (values["cuda"], "CUDA UMD Version")))
        heads += [("KMD Version", values["module"]), ("CUDA UMD Version", values["cuda"])]
    else:
        heads += [("Driver Version", values["module"]), ("CUDA Version", values["cuda"])]
    lines = ["", "==============NVSMI LOG==============", ""]
    lines += [f"{label.ljust(width)}: {value}" for label, value in heads]
    lines += ["", "Attached GPUs".ljust(width) + f": {len(machine.gpus)}"]
    for gpu in gpus:
        lines.append("GPU " + gpu["bus_id"])
        for node in tree():
            lines += _text(node, gpu, branch, width, "    ")
        lines.append("")
    return "\n".join(lines)


def _text(node: Node, gpu: dict[str, str], branch: int, width: int, indent: str) -> list[str]:
    if not node.there(gpu, branch):
        return []
    hidden = node.label.strip() == "-"
    if node.tag == "mig_devices":
        return _mig_text(mig_rows(gpu, branch), width, indent)
    if node.below:
        deeper = indent if hidden else indent + "    "
        inner = [line for one in node.below for line in _text(one, gpu, branch, width, deeper)]
        return inner if hidden else [indent + node.label, *inner]
    if hidden:
        return []
    label = node.label.strip()
    if label.startswith("+"):
        label = "    " + label[1:]
    value = "None" if node.tag == "processes" else shown(gpu, node.term)
    return [f"{(indent + label).ljust(width)}: {value}"]


def mig_rows(gpu: dict[str, str], branch: int) -> list[tuple[int, str, str, str]]:
    """The MIG devices of a GPU: depth, element, words and value of every line; a device begins at depth 0."""
    shared = "Shared " if branch >= 555 else ""
    rows: list[tuple[int, str, str, str]] = []
    for at, one in enumerate(devices(gpu)):
        use = one.profile
        rows += [
            (0, "mig_device", "MIG Device", ""),
            (1, "index", "Index", str(at)),
            (1, "gpu_instance_id", "GPU Instance ID", str(one.id)),
            (1, "compute_instance_id", "Compute Instance ID", "0"),
            (1, "device_attributes", "Device Attributes", ""),
            (2, "shared", "Shared", ""),
            (3, "multiprocessor_count", "Multiprocessor count", str(use.sm)),
            (3, "copy_engine_count", "Copy Engine count", str(use.ce)),
            (3, "encoder_count", "Encoder count", str(use.enc)),
            (3, "decoder_count", "Decoder count", str(use.dec)),
            (3, "ofa_count", "OFA count", str(use.ofa)),
            (3, "jpg_count", "JPG count", str(use.jpg)),
            (1, "ecc_error_count", "ECC Errors", ""),
            (2, "volatile_count", "Volatile", ""),
            (3, "sram_uncorrectable", "SRAM Uncorrectable", "0"),
            (1, "fb_memory_usage", shared + "FB Memory Usage", ""),
            (2, "total", "Total", f"{use.memory} MiB"),
            (2, "reserved", "Reserved", "0 MiB"),
            (2, "used", "Used", "1 MiB"),
            (2, "free", "Free", f"{use.memory - 1} MiB"),
            (1, "bar1_memory_usage", shared + "BAR1 Memory", ""),
            (2, "total", "Total", f"{use.bar1} MiB"),
            (2, "used", "Used", "0 MiB"),
            (2, "free", "Free", f"{use.bar1} MiB"),
        ]
    return rows


def _mig_text(rows: list[tuple[int, str, str, str]], width: int, indent: str) -> list[str]:
    lines = []
    for depth, _, words, value in rows:
        label = indent + "    " * depth + words
        lines.append(f"{label.ljust(width)}: {value}" if value else label)
    return lines


def _mig_xml(rows: list[tuple[int, str, str, str]], indent: str) -> list[str]:
    lines: list[str] = []
    above: list[str] = []
    for depth, tag, _, value in [*rows, (0, "", "", "")]:
        while len(above) > depth:
            lines.append(indent + "\t" * (len(above) - 1) + f"</{above.pop()}>")
        if tag and value:
            lines.append(indent + "\t" * depth + f"<{tag}>{value}</{tag}>")
        elif tag:
            lines.append(indent + "\t" * depth + f"<{tag}>")
            above.append(tag)
    return lines
