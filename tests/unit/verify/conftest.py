"""A node with an environment whose framework is a few lines that a test writes; its scripts run for real."""

from __future__ import annotations

import json
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gpustrap_node import environments
from gpustrap_node.host import Host

from gpustrap.verify.gpustrap_verify import main
from gpustrap.verify.gpustrap_verify.node import Node, Result, run_command

DIGEST = "0123456789abcdef" * 4
SITE_PACKAGES = Path(sysconfig.get_path("purelib", vars={"base": "", "platbase": ""}).lstrip("/"))
SMI = "nvidia-smi --query-gpu=pci.bus_id,uuid,name,mig.mode.current"


@dataclass
class World:
    """The node.

    Attributes:
        root: Its file system.
        commands: What its commands answer, by the beginning of the command line.
        runs: The environment variables of each run of a script.
    """

    root: Path
    commands: dict[str, Result] = field(default_factory=dict)
    runs: list[dict[str, str]] = field(default_factory=list)

    def file(self, name: str, text: str = "") -> Path:
        """Write a file of the node."""
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def environment(self, name: str, modules: dict[str, str], *, directory: str = DIGEST[:16]) -> Path:
        """An environment as the role leaves it, with modules of the given texts."""
        path = self.root / environments.PREFIX[1:] / name / directory
        for module, text in modules.items():
            package = path / SITE_PACKAGES / module
            package.mkdir(parents=True)
            (package / "__init__.py").write_text(text)
            info = path / SITE_PACKAGES / f"{module}-1.0.dist-info"
            info.mkdir()
            (info / "RECORD").write_text(f"{module}/__init__.py,,\n")
        (path / "bin").mkdir(parents=True, exist_ok=True)
        (path / "bin" / "python").symlink_to(Path(sys.executable).resolve())
        (path / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
        (path.parent / "current").symlink_to(directory)
        host, where = Host(str(self.root)), f"{environments.PREFIX}/{name}/{directory}"
        there = environments.parts(host, where)
        marker = {"name": name, "lock": directory[:16], "parts": there}
        (path / environments.MARKER).write_text(json.dumps(marker))
        return path

    def gpus(self, *names: str, mig: str = "[N/A]", listed: int | None = None) -> None:
        """GPUs on the PCI bus, and in nvidia-smi's list."""
        rows = []
        for number, name in enumerate(names, start=1):
            device = f"/sys/bus/pci/devices/0000:{number:02x}:00.0"
            self.file(f"{device}/vendor", "0x10de\n")
            self.file(f"{device}/class", "0x030200\n")
            self.file(f"{device}/device", "0x2235\n")
            rows.append(f"00000000:{number:02X}:00.0, GPU-{number}, {name}, {mig}")
        self.commands[SMI] = Result(0, "\n".join(rows[:listed]) + "\n")

    def check(self, name: str, framework: str, **args: Any) -> dict[str, Any]:
        """What the check of an environment finds."""
        arguments = {
            "name": name,
            "prefix": environments.PREFIX,
            "digest": DIGEST,
            "framework": framework,
            "modules": [],
            "compute": [],
            "gpus": [],
            "users": "all",
            "gpu_group": "",
            "conda": False,
            "size": 24,
            "thorough": True,
        }
        node = Node("run1", time.monotonic() + 60, self.root, self._execute)
        return main.run(node, f"environment-{name}", {**arguments, **args})

    def _execute(self, argv: Any, timeout: float, stdin: bytes, environment: dict[str, str]) -> Result:
        if argv[0].endswith("/bin/python"):
            self.runs.append(environment)
            path = environment.get("PYTHONPATH")  # the node's own is below the root
            here = {**environment, "PYTHONPATH": f"{self.root}{path}"} if path else environment
            return run_command([str(self.root / argv[0][1:]), *argv[1:]], min(timeout, 20), stdin, here)
        line = " ".join(argv)
        found = max((c for c in self.commands if line.startswith(c)), key=len, default=None)
        return self.commands[found] if found else Result(None, problem=f"{argv[0]} is not on this node")


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "var" / "tmp").mkdir(parents=True)
    return World(tmp_path)
