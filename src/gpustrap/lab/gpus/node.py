"""How a lab node gets its simulated GPUs: a directory that its boot copies, and changes while it runs."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpustrap.lab import state as state_files
from gpustrap.lab.engine import refusal
from gpustrap.lab.gpus import boot, build, kernel, state
from gpustrap.lab.gpus.kernel_log import kernel_log
from gpustrap.lab.gpus.machine import GpuError, Machine, driver, machine, profiles

if TYPE_CHECKING:
    from gpustrap.lab.manager import LabNode

HERE = boot.HERE


def parse(words: str, seed: str) -> Machine:
    """A machine from ``PROFILE``, which has no driver yet, or ``PROFILE:BRANCH[:FLAVOUR]``, whose driver runs.

    Raises:
        GpuError: There is no such profile, branch or flavour.
    """
    profile, *rest = words.split(":")
    if len(rest) > 2:
        raise GpuError(f"{words}: GPUs are given as PROFILE or PROFILE:BRANCH[:FLAVOUR]")
    return machine(profile, driver(*rest) if rest else None, seed)


def prepare(directory: Path, there: Machine) -> None:
    """Write what the node's next boot takes; one that runs does not see it.

    Raises:
        GpuError: The stand-ins for NVIDIA's libraries cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="gpustrap-gpus-") as temporary:
        new = Path(temporary)
        boot.lay(new, there)
        build.smi(new / "bin/nvidia-smi")
        build.boot(new / "bin/lab-gpu-boot")
        build.log(new / "bin/lab-gpu-log")
        shutil.copy(build.HERE / "devices.sh", new / "bin/lab-gpu-devices")
        build.library(new / "lib")
        build.cuda_library(new / "lib")
        kernel.write(new / "kernel", os.uname().release)
        for path in (new, *new.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)  # the same directory all the time: a node has it mounted
        for path in directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(new, directory, symlinks=True, dirs_exist_ok=True)


def ready(directory: Path, lab: str, node: str, words: str, *, known: bool) -> None:
    """Write the directory of a node that is not there yet.

    Raises:
        GpustrapError: Its GPUs do not exist or cannot be built; or the node is there and has other ones.
    """
    try:
        wanted = parse(words, f"{lab}/{node}")
        if not known:
            state_files.make_directory(directory)
            prepare(directory, wanted)
        elif not directory.exists() or read(directory).profile != wanted.profile:
            message, remedy = f"lab {lab} has it already, with other GPUs or none", f"gpustrap lab down --lab {lab}"
            raise refusal("lab-node-differs", f"node {node}", message, remedy=remedy)
    except GpuError as error:
        remedy = f"--gpus PROFILE[:BRANCH[:FLAVOUR]], PROFILE one of {', '.join(profiles())}"
        raise refusal("lab-gpus-invalid", f"node {node}", str(error), remedy=remedy) from error


def read(directory: Path) -> Machine:
    """The machine as the next boot finds it."""
    return state.parse((directory / "state").read_text(encoding="ascii"))


def running(node: LabNode) -> Machine:
    """The machine as it runs."""
    return state.parse(node.exec(f"cat {HERE}/state").stdout)


def change(node: LabNode, there: Machine) -> None:
    """Let a running node see another state of its hardware at once: a fault comes, or goes.

    Raises:
        GpuError: The node has no simulated GPUs, or the driver is another one, which takes a reboot.
    """
    if node.exec(f"test -f {HERE}/state").returncode != 0:
        raise GpuError(f"node {node.name} has no simulated GPUs")
    if running(node).driver != there.driver:
        raise GpuError(f"node {node.name}: another driver runs after a reboot")
    with tempfile.TemporaryDirectory(prefix="gpustrap-gpus-") as temporary:
        boot.lay(Path(temporary), there)
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path in sorted(Path(temporary).iterdir()):
                archive.add(path, path.name)
    before = set(node.exec(f"cat {HERE}/kernel.log").stdout.splitlines())
    # What is bind-mounted stays the same directory; the state comes last, in one step.
    script = (
        f"cd {HERE} && rm -rf sys/devices/* sys/bus/pci/devices/* proc/driver/* && "
        "tar -x --no-same-owner --exclude=state -f - && exit 0; exit 1"
    )
    done = node.exec(script, stdin=stream.getvalue())
    if done.returncode == 0:
        put = f"cat >{HERE}/.state && chmod 644 {HERE}/.state && mv {HERE}/.state {HERE}/state"
        done = node.exec(put, stdin=state.text(there).encode())
    if done.returncode != 0:
        raise GpuError(f"node {node.name}: its GPUs cannot be changed: {done.stderr[-500:]}")
    news = [line for line in kernel_log(there) if line not in before]
    if news:
        node.exec("[ ! -p /dev/kmsg ] || exec /usr/lib/lab-gpu/bin/lab-gpu-log", stdin="\n".join(news).encode())
