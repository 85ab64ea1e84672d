"""``-q`` as text and, with ``-x``, as XML; both are one tree."""

from __future__ import annotations

import time
from functools import lru_cache
from xml.sax.saxutils import escape

from .csv import in_branches, text_of
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
