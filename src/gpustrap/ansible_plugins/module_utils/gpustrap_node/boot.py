"""What the next boot will load: NVIDIA's module of every bootable kernel, its user space, and what is in the way.

Three versions of the driver have to agree: the loaded module (`nvidia`), the module on disk, and the library. Nothing
is loaded or built to find out.
"""

from __future__ import annotations

import re

from . import kmod, mok
from .host import Host
from .system import CONTAINERS, MODULES, newest_of_flavour

# Debian's archive renames the module after its alternative: nvidia-current.ko.
NAME = re.compile(r"nvidia(-current(-open)?|-tesla(-\d+)?(-open)?|-legacy-\d+xx)?\.ko(\.(xz|gz|zst))?\Z")
# In depmod's order, and for a kernel that depmod has not looked at.
PLACES = ("updates/dkms", "updates", "extra", "extra/nvidia", "weak-updates", "kernel/drivers/video")
LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
)
LIBRARY = re.compile(r"libnvidia-ml\.so\.(\d+(?:\.\d+)+)\Z")
RIVALS = ("nouveau", "nova_core")
MODPROBE = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
INITRD = ("/boot/initrd.img-%s", "/boot/initramfs-%s.img", "/boot/initrd-%s")
FLAVOURS = {"NVIDIA": "proprietary", "Dual MIT/GPL": "open"}


def boot_facts(host: Host, kernel: dict[str, object], virt: str) -> dict[str, object]:
    """The module of every kernel that can be booted, the libraries, and the signing key.

    Args:
        host: The machine.
        kernel: Its `system.kernel_facts`.
        virt: Its `system.virtualization`: a container boots its host's kernel, whatever is installed in it.
    """
    running, installed = str(kernel["running"]), kernel["installed"]
    releases = [str(k) for k in installed] if isinstance(installed, list) else []
    coming = running if virt in CONTAINERS else newest_of_flavour(running, releases) or running
    own = mok.mok_facts(host)
    cmdline = str(kernel["cmdline"])
    blocked = {rival: _blocked_since(host, rival, cmdline) for rival in RIVALS}
    every = sorted({*releases, running} - {""})
    return {
        "next": coming,
        "kernels": [_kernel(host, release, blocked, str(own["serial"])) for release in every],
        "library": library_in_use(host),
        "libraries": [{"version": version, "path": path} for path, version in _libraries(host)],
        "mok": own,
    }


def _kernel(host: Host, release: str, blocked: dict[str, float | None], serial: str) -> dict[str, object]:
    path = module_path(host, release)
    module = kmod.read_module(host, path) if path else None
    return {
        "release": release,
        "module": path,
        "version": module.version if module else "",
        "flavour": FLAVOURS.get(module.license) if module else None,
        "built_for": module.vermagic.partition(" ")[0] if module else "",
        "signer": module.signer if module else "",
        "own_key": bool(module and module.key and module.key == serial),
        "rivals": _rivals(host, release, blocked),
    }


def module_path(host: Host, release: str) -> str:
    """The file that modprobe would take for ``nvidia``; empty where there is none."""
    top = "%s/%s" % (MODULES, release)
    listed = (line.partition(":")[0] for line in (host.read(top + "/modules.dep") or "").splitlines())
    found = ["%s/%s" % (top, one) for one in listed if NAME.match(one.rpartition("/")[2])]
    prebuilt = ["kernel/" + name for name in host.names(top + "/kernel") if name.startswith("nvidia-")]
    for place in (*PLACES, *prebuilt):
        found += ["%s/%s/%s" % (top, place, name) for name in host.names("%s/%s" % (top, place)) if NAME.match(name)]
    return next((path for path in sorted(found, key=_rank) if host.exists(path)), "")


def _rank(path: str) -> int:
    """Depmod's default order: updates before extra before the rest."""
    return 0 if "/updates/" in path else 1 if "/extra/" in path or "/weak-updates/" in path else 2


def _rivals(host: Host, release: str, blocked: dict[str, float | None]) -> list[str]:
    """Drivers that may take the GPUs at the next boot: not blocked, or blocked after the initramfs was made.

    What an initramfs holds is not unpacked: one that is younger than the blacklist has it.
    """
    initrd = next((s for s in (host.stat(one % release) for one in INITRD) if s), None)
    found = []
    for rival, since in blocked.items():
        if not _has_module(host, release, rival):
            continue
        if since is None:
            found.append("%s is not blacklisted" % rival)
        elif initrd is not None and initrd.st_mtime < since:
            found.append("the initramfs is older than the blacklist of %s" % rival)
    return found


def _has_module(host: Host, release: str, name: str) -> bool:
    top = "%s/%s" % (MODULES, release)
    listed = (host.read(top + "/modules.dep") or "").replace("-", "_")
    return "/%s.ko" % name in listed or host.is_dir("%s/kernel/drivers/gpu/drm/%s" % (top, name))


def _blocked_since(host: Host, name: str, cmdline: str) -> float | None:
    """Since when a module is blacklisted (the oldest place that says so); None where none does."""
    if re.search(r"\b(modprobe\.blacklist|module_blacklist|rd\.driver\.blacklist)=\S*\b%s\b" % name, cmdline):
        return 0.0
    line = re.compile(r"^[ \t]*(blacklist[ \t]+%s[ \t]*$|install[ \t]+%s[ \t]+/)" % (name, name), re.MULTILINE)
    times = []
    for directory in MODPROBE:
        for path in host.match(directory, "*.conf"):
            status = host.stat(path)
            if status and line.search((host.read(path) or "").replace("-", "_")):
                # A package's file has the time of its packing; packages rebuild the initramfs themselves.
                times.append(status.st_mtime)
    return min(times) if times else None


def _libraries(host: Host) -> list[tuple[str, str]]:
    """Path and version of every management library; each file once, however many links lead to it."""
    found: dict[str, str] = {}
    for directory in LIBRARIES:
        for path in host.match(directory, "libnvidia-ml.so.*"):
            real = host.real(path)
            named = LIBRARY.search(real)
            if named:
                found.setdefault(real, named.group(1))
    return sorted(found.items())


def library_in_use(host: Host) -> str:
    """The version behind ``libnvidia-ml.so.1`` as the loader finds it; empty where there is none."""
    for directory in LIBRARIES:
        path = directory + "/libnvidia-ml.so.1"
        # The name that the link has tells the version, also where that is a link to a file of another name.
        named = LIBRARY.search(host.readlink(path) or "") or LIBRARY.search(host.real(path))
        if named and host.exists(path):
            return named.group(1)
    versions = {version for _path, version in _libraries(host)}
    return versions.pop() if len(versions) == 1 else ""
