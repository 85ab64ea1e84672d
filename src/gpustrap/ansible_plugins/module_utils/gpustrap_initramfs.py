"""Whether every kernel's initramfs keeps the drivers out that ours says must stay out. Standard library only.

A blacklist that is only on disk comes too late: nouveau is in the initramfs, and binds the GPUs before that is mounted
(NVIDIA/ansible-role-nvidia-driver#44). So each image is looked into once, and what was seen is noted with its size and
time: a later run opens only images that somebody made anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Iterable, NamedTuple, Optional

from .gpustrap_kernel_modules import plain
from .gpustrap_node.host import Host

NOTED = "/var/lib/gpustrap/initramfs.json"
PLACES = ("/boot/initrd.img-%s", "/boot/initramfs-%s.img")  # Debian's and Ubuntu's, the RHEL family's
DRIVER_PLACES = ("/updates", "/updates/dkms", "/extra")  # of DKMS; Ubuntu's prebuilt ones are in kernel/nvidia-580srv
LISTERS = ("lsinitramfs", "lsinitrd")
LISTING_TIME = 60.0  # seconds; a big image on a slow disk takes ten


class Image(NamedTuple):
    """A bootable kernel and its initramfs."""

    kernel: str
    path: str


class Bad(NamedTuple):
    """An image that must be made anew, and why."""

    path: str
    why: str


class Contents(NamedTuple):
    """What matters of what an image holds."""

    blacklist: bool
    conflicting: bool
    ours: bool


def images(host: Host) -> list[Image]:
    """The initramfs of each kernel in /boot; rescue images are never made anew, so they do not count."""
    found = []
    for vmlinuz in host.match("/boot", "vmlinuz-*"):
        kernel = vmlinuz.partition("-")[2]
        path = next((place % kernel for place in PLACES if host.exists(place % kernel)), None)
        if path and not kernel.startswith("0-rescue"):
            found.append(Image(kernel, path))
    return found


def contents(listing: str, conf: str, blacklist: Iterable[str]) -> Contents:
    """Read the listing of an image.

    Args:
        listing: What lsinitramfs or lsinitrd printed: paths, behind other columns or not.
        conf: Absolute path of our file in modprobe.d.
        blacklist: Modules that must not be loaded from it.
    """
    modules = {plain(name) for name in re.findall(r"([^/\s]+)\.ko(?:\.\w+)?$", listing, re.MULTILINE)}
    return Contents(
        blacklist=bool(re.search(r"(^|[\s/])%s$" % re.escape(conf.lstrip("/")), listing, re.MULTILINE)),
        conflicting=bool(modules & {plain(name) for name in blacklist}),
        ours=any(name == "nvidia" or name.startswith(("nvidia_current", "nvidia_tesla")) for name in modules),
    )


class Initramfs:
    """All images of a machine, against our file.

    Attributes:
        conf: Our file in modprobe.d.
        text: What it holds, or will hold.
    """

    def __init__(self, host: Host, conf: str, text: str, blacklist: Iterable[str]) -> None:
        self.host, self.conf, self.text, self.blacklist = host, conf, text, tuple(blacklist)
        self.noted: dict[str, object] = self._noted()

    def _noted(self) -> dict[str, object]:
        try:
            found = json.loads(self.host.read(NOTED) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def bad(self) -> list[Bad]:
        """The images to make anew. What is good is put down in ``noted``."""
        found = []
        noted: dict[str, object] = {}
        for image in images(self.host):
            mark = self._mark(image)
            why = "" if self.noted.get(image.path) == mark else self._why(image)
            if why:
                found.append(Bad(image.path, why))
            else:
                noted[image.path] = mark
        self.noted = noted
        return found

    def _mark(self, image: Image) -> list[object]:
        """What a look at an image rests on: the image, our file, and the driver's modules on disk."""
        status = self.host.stat(image.path)
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return [status.st_size, status.st_mtime_ns, digest, self._module_time(image)] if status else []

    def _why(self, image: Image) -> str:
        conf, status = self.host.stat(self.conf), self.host.stat(image.path)
        if conf is None or status is None or self.host.read(self.conf) != self.text or status.st_mtime < conf.st_mtime:
            return "it is older than %s" % self.conf
        seen = self._look(image)
        if seen is None:  # nothing here can list it: its age must do
            return ""
        if seen.conflicting and not seen.blacklist:
            return "it holds drivers that must stay out, and not %s" % self.conf
        if seen.ours and status.st_mtime < self._module_time(image):
            return "it holds an older NVIDIA driver than /lib/modules/%s" % image.kernel
        return ""

    def _look(self, image: Image) -> Optional[Contents]:
        for lister in LISTERS:
            done = self.host.run((lister, self.host.path(image.path)), LISTING_TIME)
            if done is not None and done.rc == 0 and done.stdout.strip():
                return contents(done.stdout, self.conf, self.blacklist)
        return None

    def _module_time(self, image: Image) -> float:
        """When the newest module of the driver was written for a kernel."""
        base = "/lib/modules/%s" % image.kernel
        places = [base + place for place in DRIVER_PLACES] + self.host.match(base + "/kernel", "nvidia-*")
        paths = [path for place in places for path in self.host.match(place, "nvidia*.ko*")]
        times = [status.st_mtime for status in map(self.host.stat, paths) if status]
        return max(times, default=0.0)
