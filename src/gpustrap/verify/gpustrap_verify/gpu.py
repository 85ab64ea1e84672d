"""Checks of the GPU stack: the driver that is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .node import Finding, Node, failed, passed
from .remedies import Remedy

LOADED = re.compile(r"^NVRM version: .*?\s(\d{3}\.\d+(?:\.\d+)?)\s", re.MULTILINE)
MODULE = re.compile(r"^nvidia(-[a-z0-9-]+)?\.ko(\.(gz|xz|zst))?$")
# https://docs.nvidia.com/deploy/xid-errors/: 79, a GPU that has fallen off the bus.
LOST = re.compile(r"GPU is lost|fallen off the bus", re.IGNORECASE)
TOLD = re.compile(r"nvidia|NVRM|PKCS#7|unsigned module", re.IGNORECASE)
REJECTED = re.compile(r"PKCS#7 signature not signed with a trusted key|unsigned module is rejected|Key was rejected")


def driver(node: Node, args: dict[str, Any]) -> Finding:
    """The kernel has loaded the locked driver, and the driver answers.

    Args:
        node: The node.
        args: ``version``: the locked driver's own; empty where the lock does not know it.
    """
    loaded = LOADED.search(_read(node.path("/proc/driver/nvidia/version")))
    asked = node.run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", timeout=60)
    if not loaded:
        return _not_loaded(node, asked.words)
    version = loaded.group(1)
    if args["version"] and version != args["version"]:
        reason = f"driver {version} is loaded, and {args['version']} is locked"
        return failed(reason, asked.words, Remedy.REBOOT)
    if not asked.ok and LOST.search(asked.words):
        return failed(f"driver {version} is loaded, and has lost a GPU", asked.words, Remedy.BAD_GPU)
    if not asked.ok:
        return failed(f"driver {version} is loaded, and nvidia-smi cannot use it", asked.words, Remedy.APPLY)
    return passed(version=version, gpus=len(asked.out.split()))


def _not_loaded(node: Node, symptom: str) -> Finding:
    """What nvidia-smi says of it is always the same; why is in the module tree and in the kernel's log."""
    kernel = _read(node.path("/proc/sys/kernel/osrelease")).strip()
    if not _has_module(node.path(f"/lib/modules/{kernel}")):
        return failed(f"the driver is not loaded: kernel {kernel} has no module of it", symptom, Remedy.APPLY)
    log = node.run("journalctl", "-k", "-b", "--no-pager", "-o", "cat", timeout=20).out
    words = "\n".join([symptom, *[line for line in log.splitlines() if TOLD.search(line)][-12:]])
    if REJECTED.search(log):
        return failed("the driver is not loaded: Secure Boot does not trust who signed its module", words, Remedy.APPLY)
    if node.path("/sys/module/nouveau").exists():
        return failed("the driver is not loaded: nouveau has the GPUs", words, Remedy.REBOOT)
    return failed(f"the driver is not loaded, although kernel {kernel} has its module", words, Remedy.REBOOT)


def _has_module(tree: Path) -> bool:
    return any(MODULE.match(path.name) for path in tree.rglob("nvidia*.ko*"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
