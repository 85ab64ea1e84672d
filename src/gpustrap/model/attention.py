"""What a person should look at on a node, from its facts alone, each with the next step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpustrap.model.facts import Facts, FilesystemFacts, InstallFacts
from gpustrap.model.reboot import CONTAINERS, Need, decide_driver

SKEW_LIMIT = 60.0  # seconds; signatures of repositories and TLS begin to fail
GIB = 1024**3
TMP, VAR_TMP = "/tmp", "/var/tmp"  # noqa: S108 - named, not written
PROGRAMS_RUN = frozenset({"/", "/usr", "/usr/local", "/opt", "/home", "/var", "/var/lib", "/var/lib/docker", TMP})
NVIDIA_LOG = "sudo journalctl -k -b | grep -iE 'NVRM|Xid'"
NEEDED = PROGRAMS_RUN | {"/var/cache", VAR_TMP}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at.

    Attributes:
        message: What is so, in one sentence without a trailing full stop.
        remedy: The one next command or act; empty where waiting is enough or nothing can be done from here.
    """

    message: str
    remedy: str = ""


def attention(facts: Facts) -> tuple[Finding, ...]:
    """Everything worth a look, the worst first."""
    parts = (_package_manager, _clock, _filesystems, _driver, _reboot, _installs, _gpus, _rights)
    return tuple(finding for part in parts for finding in part(facts))


def _package_manager(facts: Facts) -> Iterator[Finding]:
    manager = facts.package_manager
    if manager.kind == "dnf":
        yield Finding("packages are managed by dnf, which gpustrap does not manage yet")
    elif manager.kind == "unknown":
        yield Finding("no package manager that gpustrap knows was found")
    holders: dict[tuple[int, str], list[str]] = {}
    for lock in manager.locks:
        holders.setdefault((lock.pid, lock.command), []).append(lock.path)
    for (pid, command), paths in holders.items():
        who = f"process {pid} ({command[:60] or 'command unknown'})" if pid > 0 else "a process outside this system"
        look = f"wait for it, or look: ps -fp {pid}" if pid > 0 else "find what runs apt or dpkg on its files"
        yield Finding(f"{who} holds {', '.join(paths)}", look)
    if manager.interrupted:
        yield Finding("dpkg was interrupted", "sudo dpkg --configure -a")
    if manager.broken and not manager.locks:  # while dpkg is at work, some always are
        repair = "sudo apt-get --fix-broken install" if manager.interrupted else "sudo dpkg --configure -a"
        yield Finding(f"not fully installed: {_some(manager.broken)}", repair)
    for problem in manager.source_problems:
        yield Finding(f"apt sources: {problem}", "mend /etc/apt/sources.list.d, then: sudo apt-get update")
    if facts.unattended_upgrades.enabled and facts.unattended_upgrades.automatic_reboot:
        yield Finding(
            "unattended-upgrades may reboot this node by itself", 'set Automatic-Reboot "false" in apt.conf.d'
        )


def _clock(facts: Facts) -> Iterator[Finding]:
    skew = facts.time.skew
    if skew is not None and abs(skew) > SKEW_LIMIT:
        where = "ahead of" if skew > 0 else "behind"
        mend = "check this machine's clock too" if facts.time.synchronized else "sudo timedatectl set-ntp true"
        yield Finding(f"its clock is {duration(abs(skew))} {where} this machine's", mend)
    elif facts.time.synchronized is False and facts.virtualization not in CONTAINERS:
        yield Finding("nothing keeps its clock right", "sudo timedatectl set-ntp true")


def _filesystems(facts: Facts) -> Iterator[Finding]:
    for disk in facts.filesystems:
        if disk.mount not in NEEDED:
            continue
        if "ro" in disk.options:
            yield Finding(f"{disk.mount} is mounted read-only", "look for disk errors: sudo dmesg --level err")
        if "noexec" in disk.options and disk.mount in PROGRAMS_RUN:
            yield Finding(f"{disk.mount} is mounted noexec: programs and installers cannot run there")
        if nearly_full(disk):
            yield Finding(
                f"{disk.mount} is nearly full: {disk.free / GIB:.1f} of {disk.size / GIB:.1f} GiB free",
                f"sudo du -xh --max-depth 2 {disk.mount} | sort -h | tail",
            )
        if disk.inodes and disk.inodes_free < disk.inodes * 0.05:
            yield Finding(
                f"{disk.mount} has hardly an inode free: {disk.inodes_free} of {disk.inodes}",
                f"sudo du -x --inodes --max-depth 2 {disk.mount} | sort -n | tail",
            )


def nearly_full(disk: FilesystemFacts) -> bool:
    """Less than a tenth free and that under 10 GiB, or under 1 GiB (a small scratch directory in memory is no disk)."""
    if not disk.size or (disk.type == "tmpfs" and disk.free > disk.size / 2):
        return False
    return disk.free < min(disk.size * 0.1, 10 * GIB) or disk.free < GIB


def _reboot(facts: Facts) -> Iterator[Finding]:
    if facts.reboot_required:
        yield Finding(f"a reboot is due: {_some(facts.reboot_reasons, '; ')}", "sudo systemctl reboot, when it may")


def _driver(facts: Facts) -> Iterator[Finding]:
    """By the same decision that apply rests on."""
    decision = decide_driver(facts)
    if decision.need is not Need.NONE and facts.boot.kernels:
        yield Finding(f"NVIDIA: {decision.reason}", decision.next_step())


def _installs(facts: Facts) -> Iterator[Finding]:
    for found in facts.installs:
        finding = _install(found)
        if finding:
            yield finding
    drivers = {
        i.version for i in facts.installs if i.what == "nvidia-driver" and (i.path or i.origin == "loaded module")
    }
    if len(drivers - {""}) > 1 and not list(_driver(facts)):
        yield Finding(f"parts of the NVIDIA driver are of different versions: {_some(sorted(drivers - {''}))}")


def _install(found: InstallFacts) -> Finding | None:
    known = {
        ("docker", "snap"): (
            "docker is installed as a snap",
            "keep its data, then set gpustrap_docker_replace_snap: true, or: sudo snap remove docker",
        ),
        ("docker", "unowned"): (f"{found.path} is from no package", "remove what was installed by hand"),
        ("nvidia-driver", "runfile"): (
            "the NVIDIA driver was installed by NVIDIA's .run file",
            "sudo nvidia-uninstall, before packages take over",
        ),
        ("nvidia-driver", "unowned"): (f"{found.path} is from no package", "remove what was installed by hand"),
        ("container-toolkit", "unowned"): (f"{found.path} is from no package", "remove what was installed by hand"),
    }
    if found.what == "podman-docker":
        return Finding("podman-docker stands in for docker", "sudo apt-get remove podman-docker, if docker is wanted")
    if found.what == "conda" and found.origin.startswith("Anaconda"):
        return Finding(f"the conda in {found.path} uses Anaconda's channels: their terms apply to your organisation")
    text = known.get((found.what, found.origin))
    return Finding(*text) if text else None


def _gpus(facts: Facts) -> Iterator[Finding]:
    for gpu in facts.pci:
        if gpu.link_width and gpu.link_width_max and gpu.link_width < gpu.link_width_max:
            yield Finding(
                f"GPU {gpu.address} runs on {gpu.link_width} of {gpu.link_width_max} PCIe lanes",
                "check its seat, riser and the firmware's bifurcation (some slots and clouds have no more)",
            )
        if gpu.bars_unassigned:
            yield Finding(
                f"the firmware gave a part of GPU {gpu.address}'s memory regions no address: no driver can start it",
                "in the firmware switch Above 4G Decoding on, and CSM off",
            )
    if facts.nvidia.nvml_error:
        yield Finding(f"nvidia-smi: {facts.nvidia.nvml_error[:200]}", NVIDIA_LOG)
    if facts.missing_from_nvml:
        missing = _some(facts.missing_from_nvml)
        yield Finding(f"nvidia-smi does not list what its driver holds: GPU {missing}", NVIDIA_LOG)


def _rights(facts: Facts) -> Iterator[Finding]:
    if not facts.root:
        yield Finding("read without root rights: some of this is unknown", "give the login sudo, then: gpustrap enroll")


def _some(items: tuple[str, ...] | list[str], joint: str = ", ") -> str:
    """At most five, and how many more."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return joint.join(items[:5]) + more


def duration(seconds: float) -> str:
    """The two largest units: ``3 d 4 h``, ``2 min 5 s``."""
    left, parts = round(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
