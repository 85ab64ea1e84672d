"""nvidia-container-runtime, simulated: hands a container to runc, with the simulated GPUs if it asks for any.

Runs on the node's own Python (3.10 or newer), by itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

VERSION = "@version@"
NONE = ("", "void", "none")
GENERATE = ("/usr/bin/nvidia-ctk", "cdi", "generate")
BIND = ["ro", "nosuid", "nodev", "rbind"]


def asked(document: dict[str, Any]) -> bool:
    """Whether a container asks for GPUs in the way of NVIDIA's runtime."""
    given = (word.partition("=") for word in document.get("process", {}).get("env", []))
    return {name: value for name, _equals, value in given}.get("NVIDIA_VISIBLE_DEVICES", "") not in NONE


def inject(document: dict[str, Any], spec: str) -> None:
    """Add the mounts and devices of a specification: all GPUs, whichever were asked for."""
    for path in re.findall(r"containerPath: (\S+)", spec):
        document["mounts"].append({"destination": path, "source": path, "type": "bind", "options": BIND})
    linux = document["linux"]
    for path, there in sorted(set(re.findall(r"- path: (/dev/\S+)\s+hostPath: (\S+)", spec))):
        device = Path(there).stat().st_rdev
        numbers = {"type": "c", "major": os.major(device), "minor": os.minor(device)}
        linux.setdefault("devices", []).append({"path": path, "fileMode": 0o666, **numbers})
        rules = linux.setdefault("resources", {}).setdefault("devices", [])
        rules.append({"allow": True, "access": "rwm", **numbers})


def main(words: Sequence[str]) -> None:
    """Answer one call of containerd's."""
    if list(words) in (["--version"], ["-v"]):
        sys.stdout.write(f"NVIDIA Container Runtime version {VERSION} (simulated)\n")
        sys.stdout.flush()
    bundle = next((after for word, after in pairwise(words) if word in ("--bundle", "-b")), "")
    if "create" in words and bundle:
        path = Path(bundle) / "config.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        if asked(document):
            made = subprocess.run(
                ["/usr/bin/nvidia-ctk", "cdi", "generate"], capture_output=True, text=True, check=False
            )
            if made.returncode != 0:
                raise SystemExit(made.stderr)
            inject(document, made.stdout)
            path.write_text(json.dumps(document), encoding="utf-8")
    os.execvp("runc", ["runc", *words])  # noqa: S606 - it becomes runc, as the real one does


if __name__ == "__main__":
    main(sys.argv[1:])
