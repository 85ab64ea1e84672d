"""Operating system, kernels, processor, memory, clock, virtualisation, and whether a reboot is due."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
import time

from .host import Host

CONTAINERS = ("docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "rkt", "openvz", "wsl", "proot", "pouch")

MODULES = "/lib/modules"
SYNCHRONIZED = 16_000_000  # microseconds; systemd's ntp_synced(): the kernel's bound grows until somebody corrects it


def parse_os_release(text: str) -> dict[str, str]:
    """The variables of an os-release file; lines that are no assignment are left out."""
    found = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if not equals or not key or key.startswith("#"):
            continue
        try:
            words = shlex.split(value)
        except ValueError:
            words = [value]
        found[key] = words[0] if words else ""
    return found


def os_facts(host: Host) -> dict[str, object]:
    """From os-release and uname."""
    release = parse_os_release(host.read("/etc/os-release") or host.read("/usr/lib/os-release") or "")
    if not release:
        host.note("/etc/os-release: not found")
    return {
        "id": release.get("ID", "unknown").lower(),
        "id_like": release.get("ID_LIKE", "").lower().split(),
        "version_id": release.get("VERSION_ID", ""),
        "codename": release.get("VERSION_CODENAME", "") or release.get("UBUNTU_CODENAME", ""),
        "pretty_name": release.get("PRETTY_NAME", ""),
        "architecture": architecture(host),
        "hostname": host.line("/proc/sys/kernel/hostname") or host.line("/etc/hostname"),
        "timezone": _timezone(host),
        "python": "%d.%d.%d" % sys.version_info[:3],
    }


def architecture(host: Host) -> str:
    """The kernel's own word; in a recorded tree, /proc/sys/kernel/arch."""
    return os.uname().machine if host.live else host.line("/proc/sys/kernel/arch") or "unknown"


def _timezone(host: Host) -> str | None:
    target = host.readlink("/etc/localtime") or ""
    if "zoneinfo/" in target:
        return target.split("zoneinfo/", 1)[1]
    return host.line("/etc/timezone") or None


def kernel_facts(host: Host) -> dict[str, object]:
    """The running kernel, and every one that could be booted next."""
    running = os.uname().release if host.live else host.line("/proc/sys/kernel/osrelease")
    loadable = host.exists("/proc/modules") and host.line("/proc/sys/kernel/modules_disabled") != "1"
    prefix = "/boot/vmlinuz-"
    installed = [path[len(prefix) :] for path in host.match("/boot", "vmlinuz-*")]
    return {
        "running": running,
        "installed": sorted((k for k in installed if not k.endswith((".old", ".dpkg-tmp"))), key=version_key),
        "headers": sorted(_buildable(host), key=version_key),
        "modules_loadable": loadable,
        "cmdline": host.line("/proc/cmdline"),
    }


def _buildable(host: Host) -> list[str]:
    """The kernels of which modules can be built: what /lib/modules/*/build leads to is there."""
    return [name for name in host.names(MODULES) if host.exists("%s/%s/build/Makefile" % (MODULES, name))]


def version_key(text: str) -> list[tuple[int, int, str]]:
    """Sorts kernel releases as people read them: 6.9 before 6.12."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.findall(r"\d+|[^\d]+", text)]


def cpu_facts(host: Host) -> dict[str, object]:
    """Model and number of threads."""
    text = host.read("/proc/cpuinfo") or ""
    model = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    return {
        "model": " ".join(model.group(1).split()) if model else "",
        "threads": len(re.findall(r"^processor\s*:", text, re.MULTILINE)),
    }


def memory_facts(host: Host) -> dict[str, object]:
    """From /proc/meminfo, in bytes."""
    text = host.read("/proc/meminfo") or ""
    kilobytes = {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    return {
        "total": kilobytes.get("MemTotal", 0) * 1024,
        "available": kilobytes.get("MemAvailable", 0) * 1024,
        "swap": kilobytes.get("SwapTotal", 0) * 1024,
    }


def virtualization(host: Host) -> str:
    """The word of systemd-detect-virt; without it, what files say."""
    if "microsoft" in host.line("/proc/sys/kernel/osrelease").lower():
        return "wsl"
    answer = host.run(["systemd-detect-virt"])
    if answer and answer.stdout.strip():
        return answer.stdout.strip()
    marked = host.line("/run/systemd/container")
    if marked:
        return marked
    for path, word in (("/run/.containerenv", "podman"), ("/.dockerenv", "docker")):
        if host.exists(path):
            return word
    cpu = host.read("/proc/cpuinfo")
    if cpu is None:
        return "unknown"
    return "vm-other" if re.search(r"^flags\s*:.*\bhypervisor\b", cpu, re.MULTILINE) else "none"


def time_facts(host: Host) -> dict[str, object]:
    """The clock now, and whether something keeps it right, by systemd's own measure (None: nobody could say).

    timedatectl would say the same, but asking it starts a service on the node.
    """
    error = host.clock_error()
    synchronized = None if error is None else error < SYNCHRONIZED
    return {"epoch": time.time(), "synchronized": synchronized, "skew": None}


def reboot_facts(host: Host, kernel: dict[str, object], virt: str) -> tuple[bool | None, list[str]]:
    """Whether a reboot is due, and each reason."""
    reasons = []
    if host.exists("/run/reboot-required") or host.exists("/var/run/reboot-required"):
        names = (host.read("/run/reboot-required.pkgs") or host.read("/var/run/reboot-required.pkgs") or "").split()
        reasons.append("packages ask for it: %s" % ", ".join(sorted(set(names))) if names else "the system asks for it")
    if virt in CONTAINERS:  # the kernel is the host's
        return bool(reasons), reasons
    running, installed = str(kernel["running"]), kernel["installed"]
    newest = newest_of_flavour(running, installed if isinstance(installed, list) else [])
    if newest and newest != running:
        reasons.append("kernel %s is installed, %s is running" % (newest, running))
    if host.is_dir(MODULES) and not host.exists("%s/%s" % (MODULES, running)) and host.exists("/proc/modules"):
        reasons.append("the modules of the running kernel %s are gone" % running)
    if not reasons and not installed:
        return None, reasons
    return bool(reasons), reasons


def newest_of_flavour(running: str, installed: list[str]) -> str:
    """The newest installed kernel of the running one's flavour (``generic``, ``cloud-amd64``), or nothing."""

    def flavour(release: str) -> str:
        return re.sub(r"^[\d.]+(-rc\d+|[+~][\w.+~]+)*(-\d[\d.]*)?([+~][\w.+~]+)*-?", "", release)

    return max((k for k in installed if flavour(k) == flavour(running)), key=version_key, default="")


def identity(host: Host) -> dict[str, str]:
    """Boot id, and a hash of the machine id (the id itself is a secret of the machine, see machine-id(5))."""
    machine = host.line("/etc/machine-id")
    return {
        "boot_id": host.line("/proc/sys/kernel/random/boot_id"),
        "machine_id_hash": hashlib.sha256(machine.encode()).hexdigest() if machine else "",
    }
