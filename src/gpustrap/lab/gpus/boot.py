"""What a lab node's boot makes of its GPUs. It runs on the node too, before systemd: standard library only.

As on a machine, the driver that runs is the module on disk for the kernel that runs; packages bring it. A machine that
was started with a driver, `preset`, has that one until a package brings another.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from gpustrap.lab.gpus import state, sysfs
from gpustrap.lab.gpus.kernel_log import kernel_log
from gpustrap.lab.gpus.links import out_of_fabric
from gpustrap.lab.gpus.machine import Driver, Machine, driver_of

HERE = Path("/run/lab-gpu")  # on the node, while it runs
LICENSES = {b"NVIDIA": "proprietary"}  # every other one is open: "Dual MIT/GPL"
CONF = ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")


def lay(root: Path, there: Machine) -> None:
    """Write all that a machine shows below a directory."""
    for name in ("sys", "proc"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "proc/driver").mkdir(parents=True)
    sysfs.write(root, there, links=str(HERE / "sys/devices"))
    state.write(root / "state", there)
    (root / "kernel.log").write_text("".join(f"{line}\n" for line in kernel_log(there)), encoding="ascii")


def boot(here: Path, root: Path, kernel: str) -> Machine:
    """Let the machine come up with the module that is on disk.

    Args:
        here: What the node was given, changed in place.
        root: The node's ``/``.
        kernel: Release of the running kernel.

    Returns:
        The machine as it runs.
    """
    there = state.parse((here / "state").read_text(encoding="ascii"))
    installed = module(root, kernel)
    there = replace(there, driver=installed or there.driver, nouveau=False)
    if installed:  # then the fabric manager is a package, too
        there = out_of_fabric(there)
    if there.fault("nouveau") is not None and not blacklisted(root, kernel, "nouveau"):
        there = replace(there, driver=None, nouveau=True)
    lay(here, there)
    return there


def module(root: Path, kernel: str) -> Driver | None:
    """The driver whose module is on disk for a kernel; where there are several, the one that depmod prefers."""
    modules = root / "lib/modules" / kernel
    for path in (*sorted(modules.glob("updates/**/nvidia.ko")), *sorted(modules.glob("**/nvidia.ko"))):
        said = dict(re.findall(rb"\0(version|license)=([^\0]+)", path.read_bytes()))
        if b"version" in said:
            return driver_of(said[b"version"].decode(), LICENSES.get(said.get(b"license", b""), "open"))
    return None


def blacklisted(root: Path, kernel: str, name: str) -> bool:
    """Whether a module is kept from loading: by a file that the initramfs, if there is one, was made after."""
    initramfs = root / "boot" / f"initrd.img-{kernel}"
    made = initramfs.stat().st_mtime if initramfs.exists() else None
    pattern = re.compile(rf"^\s*(blacklist\s+{name}|install\s+{name}\s+/bin/(true|false))\s*$", re.MULTILINE)
    for directory in CONF:
        for path in sorted((root / directory).glob("*.conf")):
            if pattern.search(path.read_text(encoding="utf-8", errors="replace")) and (
                made is None or path.stat().st_mtime <= made
            ):
                return True
    return False
