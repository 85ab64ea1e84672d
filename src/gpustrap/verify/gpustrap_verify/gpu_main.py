"""Check the GPUs of this machine, and nothing else: no site, no SSH, nothing installed but a driver and Python.

``python3 -m gpustrap_verify.gpu_main --report FILE`` with this package and gpustrap_node on PYTHONPATH, as
tests/hardware/verify_gpu.sh does. It takes about three minutes, all GPUs at once.
"""

from __future__ import annotations

import argparse
import glob
import json
import platform
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import gpu_compute
from .node import Finding, Node

SECONDS = 600
CHECKS = {
    "gpu-matmul": gpu_compute.matmul,
    "gpu-cublas": gpu_compute.cublas,
    "gpu-memory": gpu_compute.memory,
    "gpu-bandwidth": gpu_compute.bandwidth,
    "gpu-peers": gpu_compute.peers,
}
ENDS = {"fail": 12, "warn": 11, "pass": 0, "skip": 0}  # as docs/exit-codes.md has them


def plan(modules: Mapping[str, str], prefixes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The arguments of each check.

    Args:
        modules: PTX by the compute capability that it needs.
        prefixes: Environments in which cuBLAS may lie.
    """
    every = {"modules": modules, "gpus": [], "limit": 180, "groups": ["video", "render"]}
    return {
        "gpu-matmul": {**every, "size": 1024, "seeds": [1, 2], "seconds": 2},
        "gpu-cublas": {**every, "size": 8192, "seeds": [1], "seconds": 4, "prefixes": prefixes},
        "gpu-memory": {**every, "seed": 1, "most": None},
        "gpu-bandwidth": {**every, "size": 256 << 20, "seconds": 1},
        "gpu-peers": {**every, "size": 256 << 20, "seconds": 0.2},
    }


def main(words: Sequence[str] | None = None) -> int:
    """Run the checks, say what each found, write all of it to a file; the exit code is the worst of them."""
    asked = argparse.ArgumentParser(description="Check the GPUs of this machine.")
    asked.add_argument("--report", type=Path, help="write all that was found here, as JSON")
    asked.add_argument("--kernels", type=Path, default=Path(__file__).parents[1] / "kernels", help="where the PTX lies")
    asked.add_argument("--only", choices=CHECKS, nargs="+", default=list(CHECKS), help="these checks alone")
    given = asked.parse_args(words)
    modules = {path.stem.rpartition("_")[2]: path.read_text(encoding="utf-8") for path in given.kernels.glob("*.ptx")}
    if not modules:
        asked.error(f"{given.kernels} has no kernels (*.ptx)")
    node = Node(uuid.uuid4().hex, time.monotonic() + SECONDS)
    prefixes = [sys.prefix, *sorted(glob.glob("/opt/gpustrap/envs/*/current"))]  # noqa: PTH207 - as the checks have it
    arguments, found = plan(modules, prefixes), {}
    for name in given.only:
        start = time.monotonic()
        finding = CHECKS[name](node, arguments[name])
        found[name] = {**finding.as_dict(), "seconds": round(time.monotonic() - start, 1)}
        sys.stdout.write(_told(name, finding))
        sys.stdout.flush()
    if given.report:
        machine = {"kernel": platform.release(), "python": platform.python_version()}
        given.report.write_text(json.dumps({**machine, "checks": found}, indent=1) + "\n", encoding="utf-8")
    return max(ENDS[one["verdict"]] for one in found.values())


def _told(name: str, finding: Finding) -> str:
    lines = [f"{finding.verdict:4}  {name}  {finding.reason}".rstrip()]
    lines += [f"        {line}" for line in finding.evidence.splitlines() if finding.verdict != "pass"]
    for one in finding.data.get("measures", ()):
        where = f"{one['subject']} to {one['peer']}" if one["peer"] else one["subject"]
        lines.append(f"        {one['name']:24} {one['value']:12} {one['unit']:7} {where}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
