"""Who uses NVIDIA's GPUs now: the processes that hold their device files, by names a person knows them by."""

from __future__ import annotations

import pwd
import re
from typing import NamedTuple

from .host import Host

DRM = "/sys/class/drm"
NVIDIA = "0x10de"
# Ours to live with: they keep the driver loaded, and start anew with the next one; logind holds a screen for others.
DAEMONS = (
    "nvidia-persiste",
    "nvidia-persistenced",
    "nv-fabricmanage",
    "nv-hostengine",
    "nvidia-imex",
    "systemd-logind",
)
SCREENS = ("Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "sway", "weston", "sddm", "gdm-x-session", "lightdm")
CONTAINER = re.compile(r"(docker|libpod|crio|cri-containerd)-([0-9a-f]{12})[0-9a-f]*\.scope")
CGROUPFS = re.compile(r"/(docker|libpod)[/-]([0-9a-f]{12})[0-9a-f]*")
POD = re.compile(r"pod([0-9a-f]{8}[_-][0-9a-f_-]+)")
SLURM = re.compile(r"/job_(\d+)")
UNIT = re.compile(r"/([^/]+\.service)")
SHOWN = 60


class Holder(NamedTuple):
    """A process that has a GPU open.

    Attributes:
        known_as: What a person calls it: a container, a job, a unit, the desktop; empty for a plain process.
        devices: What it has open.
    """

    pid: int
    user: str
    command: str
    known_as: str
    devices: tuple[str, ...]

    @property
    def words(self) -> str:
        """``4711 (alice: python3 train.py), Slurm job 12``."""
        said = "%d (%s: %s)" % (self.pid, self.user, self.command)
        return "%s, %s" % (said, self.known_as) if self.known_as else said


def holders(host: Host) -> list[Holder]:
    """Every process that would lose its GPU, in order of its id; needs root to see those of others."""
    screens = _screens(host)
    found = []
    for name in sorted(filter(str.isdecimal, host.names("/proc")), key=int):
        here = "/proc/" + name
        targets = {host.readlink(path) or "" for path in host.match(here + "/fd", "*")}
        devices = sorted(t for t in targets if is_gpu(t) or t in screens)
        program = host.line(here + "/comm")
        if devices and program not in DAEMONS:
            found.append(_holder(host, int(name), program, tuple(devices)))
    return found


def is_gpu(path: str) -> bool:
    """Whether a device file is a GPU's, or one by which CUDA uses them all."""
    return bool(re.match(r"/dev/nvidia(\d+|ctl|-uvm(-tools)?|-modeset)\Z", path))


def _screens(host: Host) -> set[str]:
    """The device files through which displays at NVIDIA's GPUs are driven, by whichever driver."""
    names = [name for name in host.names(DRM) if re.match(r"(card|renderD)\d+\Z", name)]
    return {"/dev/dri/" + name for name in names if host.line("%s/%s/device/vendor" % (DRM, name)) == NVIDIA}


def _holder(host: Host, pid: int, program: str, devices: tuple[str, ...]) -> Holder:
    here = "/proc/%d" % pid
    words = (host.read(here + "/cmdline") or "").replace("\0", " ").split()
    command = " ".join("".join(c if c.isprintable() else "?" for c in word) for word in words)[:SHOWN] or program
    status = re.search(r"^Uid:\s+(\d+)", host.read(here + "/status") or "", re.MULTILINE)
    user = _user(host, int(status.group(1))) if status else "?"
    known_as = "the desktop" if program in SCREENS else known(host.read(here + "/cgroup") or "")
    return Holder(pid, user, command, known_as, devices)


def _user(host: Host, uid: int) -> str:
    if host.live:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)
    rows = [line.split(":") for line in (host.read("/etc/passwd") or "").splitlines()]
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(uid)), str(uid))


def known(cgroup: str) -> str:
    """What a person calls a process, by its cgroup; empty for one that somebody started at a shell."""
    job = SLURM.search(cgroup)
    if job:
        return "Slurm job " + job.group(1)
    pod = POD.search(cgroup)
    if pod and "kubepods" in cgroup:
        return "Kubernetes pod " + pod.group(1).replace("_", "-")
    container = CONTAINER.search(cgroup) or CGROUPFS.search(cgroup)
    if container:
        return "%s container %s" % (container.group(1).replace("libpod", "podman"), container.group(2))
    units = [unit for unit in UNIT.findall(cgroup) if not unit.startswith("user@")]
    return units[-1] if units else ""
