"""The environments of frameworks on a node: which there are, whether each is complete, and what somebody changed.

``<prefix>/<name>/<lock id>/`` is one build, and the link ``<prefix>/<name>/current`` leads to the one that is used; one
built anew from the same lock lies in ``<lock id>-2`` and so on. A build counts only with its marker, which is written
last. Reads only, and starts neither uv, pip nor conda.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from typing import Dict, List, NamedTuple, Optional

from .host import Host, NodeError

PREFIX = "/opt/gpustrap/envs"
MARKER = ".gpustrap.json"
CURRENT, PREVIOUS = "current", "previous"
ID_LENGTH = 16
NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,63}\Z")
BUILD = re.compile(r"^([0-9a-f]{%d})(?:-(\d+))?\Z" % ID_LENGTH)
MARKER_LIMIT = 1 << 20
PYTHON = "(python)"  # the interpreter and its settings, among the parts of an environment
LOOSE = "(site-packages)"  # what lies there and belongs to no package

Parts = Dict[str, str]  # a package as name-version, or one of the two above -> a short digest


class Build(NamedTuple):
    """One build of an environment.

    Attributes:
        name: Of the environment.
        directory: The name of its directory: the lock id, and a number where it was built more than once.
        path: The whole path.
        current: It is what ``current`` leads to.
        previous: It was current before, and is kept for going back.
        marker: What was written when it was complete; empty for one that never was.
        changes: What is not as it was then, e.g. ``added foo-1.0``; empty where nothing is.
    """

    name: str
    directory: str
    path: str
    current: bool
    previous: bool
    marker: Dict[str, object]
    changes: List[str]

    @property
    def lock(self) -> str:
        """The id of the lock it was built from; empty where it was never complete."""
        return str(self.marker.get("lock", ""))


def environments(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Answer the verb.

    Args:
        host: The machine.
        args: ``{"prefix": where the environments are}``.

    Returns:
        ``{"environments": [a build with all its fields, its marker without the parts]}``, by name, current first.
    """
    prefix = args.get("prefix", PREFIX)
    if not isinstance(prefix, str) or not prefix.startswith("/"):
        raise NodeError("bad-request", "args.prefix is an absolute path")
    found = []
    for name in names(host, prefix):
        for build in sorted(builds(host, prefix, name), key=lambda b: (not b.current, not b.previous, b.directory)):
            marker = {key: value for key, value in build.marker.items() if key != "parts"}
            found.append({**build._asdict(), "marker": marker})
    return {"environments": found}


def names(host: Host, prefix: str) -> list[str]:
    """The environments below a prefix, half-built ones among them."""
    return [name for name in host.names(prefix) if NAME.match(name) and host.is_dir(prefix + "/" + name)]


def builds(host: Host, prefix: str, name: str) -> list[Build]:
    """Every build of one environment, complete or not, by the name of its directory."""
    place = prefix + "/" + name
    current, previous = host.readlink(place + "/" + CURRENT), host.readlink(place + "/" + PREVIOUS)
    found = []
    for directory in host.names(place):
        status = host.stat(place + "/" + directory, follow=False)
        if BUILD.match(directory) and status is not None and stat.S_ISDIR(status.st_mode):
            marker = read_marker(host, place + "/" + directory)
            changes = differences(marker, parts(host, place + "/" + directory)) if marker else []
            at = (directory == current, directory == previous)
            found.append(Build(name, directory, place + "/" + directory, at[0], at[1], marker, changes))
    return found


def current_path(host: Host, prefix: str, name: str) -> Optional[str]:
    """Where the current build of an environment is; None where there is none."""
    target = host.readlink("%s/%s/%s" % (prefix, name, CURRENT))
    if target is None or not BUILD.match(target) or not host.is_dir("%s/%s/%s" % (prefix, name, target)):
        return None
    return "%s/%s/%s" % (prefix, name, target)


def state(host: Host, place: str) -> dict[str, object]:
    """The state of an environment for the ledger, by its path ``<prefix>/<name>``; empty where there is none.

    ``lock`` and ``fingerprint`` are those of what is there; ``changed`` says what differs from what was built.
    """
    prefix, _slash, name = place.rpartition("/")
    path = current_path(host, prefix, name)
    if path is None:
        return {}
    marker, there = read_marker(host, path), parts(host, path)
    found: dict[str, object] = {"lock": str(marker.get("lock", "")), "fingerprint": fingerprint(there)}
    changes = differences(marker, there) if marker else ["never complete"]
    if changes:
        found["changed"] = ", ".join(changes)
    return found


def read_marker(host: Host, path: str) -> dict[str, object]:
    """What was written when a build was complete; empty where it never was, or where the marker is none of ours."""
    try:
        marker = json.loads(host.read_bytes(path + "/" + MARKER, MARKER_LIMIT) or b"{}")
    except ValueError:
        return {}
    sound = isinstance(marker, dict) and isinstance(marker.get("lock"), str) and isinstance(marker.get("parts"), dict)
    return marker if sound else {}


def fingerprint(there: Parts) -> str:
    """One digest over all parts."""
    lines = "".join("%s %s\n" % item for item in sorted(there.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def differences(marker: dict[str, object], there: Parts) -> list[str]:
    """What is not as the marker has it, a package each."""
    built = marker.get("parts")
    before = built if isinstance(built, dict) else {}
    gone = ["gone %s" % name for name in sorted(set(before) - set(there))]
    added = ["added %s" % name for name in sorted(set(there) - set(before))]
    return gone + added + ["changed %s" % n for n in sorted(set(before) & set(there)) if before[n] != there[n]]


def parts(host: Host, path: str) -> Parts:
    """A short digest of each package in a build, of what belongs to none, and of its interpreter.

    A package is its ``.dist-info``, which every installer writes anew, or its file in ``conda-meta``: names, sizes and
    times, never the content of the packages' files, of which there are tens of thousands.
    """
    found = {PYTHON: _short(_python(host, path))}
    for library in host.match(path + "/lib", "python*"):
        found.update(_packages(host, library + "/site-packages"))
    for meta in (path + "/conda-meta", path + "/python/conda-meta"):
        for name in host.names(meta):
            if name.endswith(".json"):
                found["conda:" + name[: -len(".json")]] = _short([_entry(host, meta, name, times=True)])
    return found


def _packages(host: Host, directory: str) -> Parts:
    found, loose = {}, []
    for name in host.names(directory):
        if name.endswith((".dist-info", ".egg-info")):
            inside = directory + "/" + name
            lines = [_entry(host, inside, one, times=one == "RECORD") for one in host.names(inside)]
            found[name.rpartition(".")[0]] = _short(lines or [_entry(host, directory, name, times=True)])
        elif name.endswith((".pth", ".egg-link")):
            loose.append(_entry(host, directory, name, times=True))
        elif name != "__pycache__":
            loose.append(name)
    return {**found, LOOSE: _short(loose)} if found or loose else found


def _python(host: Host, path: str) -> list[str]:
    """What `bin/python` leads to in the end, and what the venv says; a node's upgrade may have taken it away."""
    real = host.real(path + "/bin/python")
    return [_entry(host, path, "pyvenv.cfg", times=True), real if host.exists(real) else "nothing"]


def _entry(host: Host, directory: str, name: str, times: bool) -> str:
    status = host.stat(directory + "/" + name, follow=False)
    if status is None:
        return name + " -"
    if stat.S_ISDIR(status.st_mode):
        return name + "/"
    return "%s %d %d" % (name, status.st_size, status.st_mtime_ns if times else 0)


def _short(lines: list[str]) -> str:
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()[:16]
