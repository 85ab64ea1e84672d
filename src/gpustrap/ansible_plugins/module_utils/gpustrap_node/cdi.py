"""CDI specifications of NVIDIA's GPUs: which devices they name, and what in them is no longer true.

Container engines read every file in /etc/cdi and /var/run/cdi; of a device in both, the second counts. nvidia-ctk
writes YAML, for which a node's Python has no reader: what matters here is read line by line.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .host import Host

KIND = "nvidia.com/gpu"
LEFTOVERS = "/etc/cdi"
DIRECTORY = "/var/run/cdi"
OURS = DIRECTORY + "/nvidia.yaml"
LINE = re.compile(r"^(?P<before>\s*(?P<dash>-\s+)?)(?P<key>[A-Za-z]+):\s*(?P<value>.*?)\s*$")
# A driver's library is called after its whole version.
VERSION = re.compile(r"/lib\w*(?:nvidia|cuda)[\w-]*\.so\.(\d{3,}\.\d+(?:\.\d+)?)$")
SHOWN = 3

Mapping = Dict[str, object]


class Spec(NamedTuple):
    """One specification: its file and mode, its devices' names, the host's files it binds, its device nodes."""

    path: str
    mode: int
    devices: Tuple[str, ...]
    files: Tuple[str, ...]
    nodes: Tuple[Mapping, ...]


def specs(host: Host) -> list[Spec]:
    """Every specification of NVIDIA's GPUs on the node, those that count most last."""
    found = []
    for directory in (LEFTOVERS, DIRECTORY):
        for path in [*host.match(directory, "*.yaml"), *host.match(directory, "*.json")]:
            text, status = host.read(path), host.stat(path)
            spec = parse(path, text, stat.S_IMODE(status.st_mode)) if text and status else None
            if spec:
                found.append(spec)
    return found


def parse(path: str, text: str, mode: int = 0o644) -> Spec | None:
    """A specification; None if it is of other devices, or none at all."""
    try:
        mappings = list(_json(json.loads(text)) if text.lstrip().startswith("{") else _yaml(text))
    except (ValueError, RecursionError):
        return None
    if not any(one.get("kind") == KIND for one in mappings):
        return None
    return Spec(
        path,
        mode,
        tuple(str(one["name"]) for one in mappings if "containerEdits" in one and "name" in one),
        tuple(sorted({str(one["hostPath"]) for one in mappings if "hostPath" in one})),
        tuple(one for one in mappings if str(one.get("path", "")).startswith("/dev/")),
    )


def _json(value: object) -> Iterator[Mapping]:
    """Every object in it, at any depth."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _json(part)


def _yaml(text: str) -> Iterator[Mapping]:
    """The mappings of block style that matter: the document's own keys, and those of the items of its lists."""
    document: Mapping = {}
    open_items: List[Tuple[int, Mapping]] = [(0, document)]
    yield document
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        column, value = len(match.group("before")), match.group("value").strip("'\"")
        while len(open_items) > 1 and open_items[-1][0] > column - (1 if match.group("dash") else 0):
            open_items.pop()
        if match.group("dash"):
            open_items.append((column, {}))
            yield open_items[-1][1]
        if open_items[-1][0] == column:
            open_items[-1][1][match.group("key")] = value


def mistakes(host: Host, spec: Spec, module: str) -> list[str]:
    """What is wrong with a specification on this node where ``module`` is loaded, each as a part of a sentence."""
    found = []
    if not spec.mode & stat.S_IROTH:
        found.append("only root can read it (mode %04o)" % spec.mode)
    others = sorted({match.group(1) for match in map(VERSION.search, spec.files) if match} - {module})
    if others:
        found.append("it is of driver %s, and %s is loaded" % (", ".join(others), module))
    gone = [path for path in spec.files if not host.exists(path)]
    if gone:
        found.append("%s not there" % _some(gone, "is", "are"))
    return found + _node_mistakes(host, spec)


def too_few(spec: Spec, gpus: int) -> str:
    """Says so if a specification names fewer GPUs than the driver has; one in parts (MIG) has other names."""
    named = sum(1 for name in spec.devices if name.isdigit())
    in_parts = any(":" in name or name.startswith("MIG-") for name in spec.devices)
    return "it names %d of %d GPUs" % (named, gpus) if named < gpus and not in_parts else ""


def _node_mistakes(host: Host, spec: Spec) -> list[str]:
    """Device nodes that are gone, or have another number than a specification says (nvidia-uvm's changes)."""
    gone, moved = [], []
    for node in spec.nodes:
        path = str(node["path"])
        status = host.stat(path)
        if status is None:
            gone.append(path)
        elif "major" in node and host.live:
            said = "%s:%s" % (node["major"], node.get("minor", 0))
            is_ = "%d:%d" % (os.major(status.st_rdev), os.minor(status.st_rdev))
            if said != is_:
                moved.append("%s is %s, not %s" % (path, is_, said))
    return ([_some(sorted(set(gone)), "is", "are") + " not there"] if gone else []) + moved[:SHOWN]


def _some(paths: Sequence[str], one: str, several: str) -> str:
    more = " and %d more" % (len(paths) - SHOWN) if len(paths) > SHOWN else ""
    return "%s%s %s" % (", ".join(paths[:SHOWN]), more, one if len(paths) == 1 else several)


def named_twice(found: Sequence[Spec]) -> list[str]:
    """Files that name a device which ours names too; engines refuse it, or take the wrong one."""
    ours = {name for spec in found if spec.path == OURS for name in spec.devices}
    return [spec.path for spec in found if spec.path != OURS and ours & set(spec.devices)]
