"""Room for what is planned, by file system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpustrap.model.facts import FilesystemFacts
from gpustrap.resolve.preflight.view import Seen, View, size, warning

BOOT = "/boot"
PACKAGES = "/usr/"  # what is planned below comes in packages
CACHES = ("/var/cache/apt/archives", "/var/cache/dnf")


@dataclass(slots=True)
class Need:
    """What a file system shall take.

    Attributes:
        least: Directory -> bytes that it must have.
        most: Bytes that it may take in all.
        files: Inodes it must have.
    """

    least: dict[str, int] = field(default_factory=dict)
    most: int = 0
    files: int = 0


def look_at_disk(view: View) -> Iterator[Seen]:
    """Shares are not measured, and what has no size is not judged."""
    mounts = {one.mount: one for one in view.facts.filesystems}
    for mount, need in sorted(_needs(view, tuple(mounts)).items()):
        disk = mounts[mount]
        if "ro" in disk.options:
            yield _read_only(view, disk, need)
        elif disk.size:
            yield from _room(view, disk, need)


def _wanted(view: View) -> list[tuple[str, int, int, int]]:
    """Directory, bytes at least, bytes at most, inodes: what is planned, its archives, a new initramfs."""
    catalog = view.inputs.catalog.preflight
    wanted = [(directory, amount, amount, amount // catalog.files.mean_size) for directory, amount in view.disk.items()]
    packages = sum(amount for directory, amount in view.disk.items() if f"{directory}/".startswith(PACKAGES))
    if packages:
        archives = packages * catalog.downloads.percent // 100
        wanted.append((view.words(*CACHES), archives, archives, 0))
    if view.driver and not view.driver.kept:
        kernels = max(len(view.facts.kernel.installed), 1)
        # Each is written anew beside the old one, one after the other, and may have grown.
        most = catalog.initramfs.with_driver + (kernels - 1) * catalog.initramfs.growth
        wanted.append((BOOT, catalog.initramfs.size, most, 0))
    return wanted


def _needs(view: View, mounts: tuple[str, ...]) -> dict[str, Need]:
    needs: dict[str, Need] = {}
    for directory, least, most, files in _wanted(view):
        mount = _holding(directory, mounts)
        if mount:
            need = needs.setdefault(mount, Need())
            need.least[directory] = need.least.get(directory, 0) + least
            need.most += most
            need.files += files
    return needs


def _holding(directory: str, mounts: tuple[str, ...]) -> str:
    """The mount point that a directory lies on; empty if there is none."""
    above = (mount for mount in mounts if f"{directory}/".startswith(mount.rstrip("/") + "/"))
    return max(above, key=len, default="")


def _evidence(disk: FilesystemFacts, need: Need) -> str:
    has = f"{disk.mount} ({disk.device or disk.type}): {size(disk.free)} of {size(disk.size)} free"
    lines = [f"planned in {where}: {size(amount)}" for where, amount in sorted(need.least.items())]
    if need.most > sum(need.least.values()):
        lines.append(f"at most: {size(need.most)}, where every initramfs takes in the driver's firmware")
    return "\n".join((has, *lines))


def _room(view: View, disk: FilesystemFacts, need: Need) -> Iterator[Seen]:
    least = sum(need.least.values())
    if least > disk.free:
        message = f"{disk.mount} has {size(disk.free)} free, and {size(least)} are planned there"
        yield view.inputs.problem("disk-too-small", message, _remedy(view, disk), evidence=_evidence(disk, need))
    elif disk.inodes and need.files > disk.inodes_free:
        message = f"{disk.mount} has {disk.inodes_free} inodes free, and about {need.files} files are planned there"
        yield view.inputs.problem("disk-too-small", message, _remedy(view, disk), evidence=_evidence(disk, need))
    elif disk.free - need.most < disk.size * view.inputs.catalog.preflight.spare.percent // 100:
        left = max(disk.free - need.most, 0)
        yield warning(
            "disk-nearly-full",
            disk.mount,
            f"of {size(disk.size)}, {size(left)} may be left after apply",
            evidence=_evidence(disk, need),
            advice=f"make room: {_look(view, disk)}",
        )


def _look(view: View, disk: FilesystemFacts) -> str:
    if disk.mount == BOOT:
        remove = view.words("sudo apt-get autoremove --purge", "sudo dnf remove --oldinstallonly")
        return f"{remove} takes old kernels away"
    return f"sudo du -xh --max-depth 2 {disk.mount} | sort -h | tail"


def _remedy(view: View, disk: FilesystemFacts) -> str:
    less = "" if disk.mount == BOOT else "; or plan less: gpustrap_cuda_version: none, fewer gpustrap_environments"
    return f"make room on {view.name}: {_look(view, disk)}{less}"


def _read_only(view: View, disk: FilesystemFacts, need: Need) -> Seen:
    message = f"{disk.mount} is mounted read-only, and {size(sum(need.least.values()))} are planned there"
    remedy = f"on {view.name}: sudo mount -o remount,rw {disk.mount}; if that fails: sudo dmesg --level err"
    return view.inputs.problem("disk-read-only", message, remedy, evidence=_evidence(disk, need))
