"""What shows an environment in Jupyter: its kernel's specification. Standard library only."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.module_utils.gpustrap_environment_place import BuildError

FILE = "kernel.json"


def text(prefix: str, name: str) -> str:
    """The specification. The link is followed once, so that a switch does not change what a running kernel imports."""
    start = 'exec "$(readlink -f {0}/{1}/current)/bin/python" -m ipykernel_launcher -f "$1"'.format(prefix, name)
    found = {
        "argv": ["/bin/sh", "-c", start, "sh", "{connection_file}"],
        "display_name": name,
        "language": "python",
        "metadata": {"gpustrap": {"environment": "{0}/{1}".format(prefix, name)}},
    }
    return json.dumps(found, indent=1) + "\n"


def differs(directory: str, prefix: str, name: str, wanted: bool) -> bool:
    """Whether there is something to write or to remove; somebody else's kernel of that name is never touched.

    Raises:
        BuildError: There is one, and ours is wanted.
    """
    path = os.path.join(directory, name, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            there = file.read()
    except FileNotFoundError:
        return wanted
    if not _is_ours(there):
        if wanted:
            raise BuildError(
                "{0} is there and gpustrap did not write it: remove it, or give the environment another name".format(
                    path
                )
            )
        return False
    return there != text(prefix, name) if wanted else True


def write(directory: str, prefix: str, name: str, wanted: bool) -> None:
    """Write it whole, or take it away."""
    place = os.path.join(directory, name)
    path = os.path.join(place, FILE)
    if not wanted:
        os.unlink(path)
        if not os.listdir(place):
            os.rmdir(place)
        return
    os.makedirs(place, mode=0o755, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text(prefix, name))
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)


def _is_ours(there: str) -> bool:
    try:
        found: Any = json.loads(there)
    except ValueError:
        return False
    return isinstance(found, dict) and "gpustrap" in (found.get("metadata") or {})
