"""Entry: runs the checks that the controller asks for, and answers with what each of them found."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpustrap_node.facts import collect_hardware
from gpustrap_node.host import Host
from gpustrap_node.main import tidy

from . import conda, docker, environment, gpu, gpu_compute, host
from .node import Finding, Node, failed

BUSY = "another verification runs on this node, or one that was cut off has not ended yet: wait, at most %.0f minutes"
CHECKS: dict[str, Callable[[Node, dict[str, Any]], Finding]] = {
    "sudo-works": host.root,
    "systemd-healthy": host.systemd,
    "clock-sane": host.clock,
    "disk-has-room": host.disk,
    "driver-loaded": gpu.driver,
    "gpu-matmul": gpu_compute.matmul,
    "gpu-cublas": gpu_compute.cublas,
    "gpu-memory": gpu_compute.memory,
    "gpu-bandwidth": gpu_compute.bandwidth,
    "gpu-peers": gpu_compute.peers,
    "docker-daemon": docker.daemon,
    "docker-config": docker.config,
    "docker-runs-a-container": docker.container,
    "conda-version": conda.version,
    "conda-creates-an-environment": conda.environment,
    "environment": environment.check,  # environment-NAME, one for each
}


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Run the checks.

    Args:
        request: ``args``: ``run_id``, ``seconds`` for all of it, ``checks``: id -> its arguments; ``modules``: PTX of
            our kernels by compute capability, for checks of GPUs; ``facts``: whether to say what this machine is.

    Returns:
        ``{"ok": true, "data": {"checks": [...], "facts": {...} or null}}``, or
        ``{"ok": false, "error": {"code", "message"}}``.
    """
    args = request["args"]
    held = hold()
    if held is None:
        return {"ok": False, "error": {"code": "busy", "message": BUSY % (args["seconds"] / 60)}}
    with held:
        deadline = time.monotonic() + args["seconds"]
        root = str(request.get("root", "/"))
        node = Node(args["run_id"], deadline, Path(root))
        modules = args.get("modules") or {}
        checks = [run(node, name, {"modules": modules, **wanted}) for name, wanted in args["checks"].items()]
        return {"ok": True, "data": {"checks": checks, "facts": facts(root) if args.get("facts") else None}}


def facts(root: str) -> object:
    """What this machine is; None where that breaks, as the checks still count."""
    try:
        return tidy(collect_hardware(Host(root)))
    except Exception:  # noqa: BLE001 - whatever it is
        return None


def hold() -> socket.socket | None:
    """One verification at a time, as each removes what it takes for leftovers. The kernel lets go when we end."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind("\0gpustrap-verify")  # an abstract name: no file, nothing to remove
    except OSError:
        held.close()
        return None
    return held


def run(node: Node, name: str, args: dict[str, Any]) -> dict[str, Any]:
    """Run one check; one that breaks has failed."""
    start = time.monotonic()
    try:
        check = CHECKS["environment" if name.startswith("environment-") else name]
        finding = check(node, args)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other checks still run
        finding = failed(f"the check itself broke: {type(error).__name__}: {error}", traceback.format_exc())
    return {"id": name, "seconds": round(time.monotonic() - start, 3), **finding.as_dict()}
