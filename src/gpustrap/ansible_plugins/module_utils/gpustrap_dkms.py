"""DKMS: which kernels have the driver's module, and why a build failed. Standard library only."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import List, NamedTuple

from .gpustrap_node.host import Host
from .gpustrap_node.system import newest_of_flavour

TREE = "/var/lib/dkms"
MODULES = "/lib/modules"
NAMES = ("nvidia", "nvidia-current*", "nvidia-tesla-*", "nvidia-srv-*")  # what packages call the driver's modules
ERROR = re.compile(r"(?:\berror\b|\bfatal error\b|ERROR|\bnot found\b|No such file|\*\*\* \[)", re.IGNORECASE)
HEAD = re.compile(r"make\.log for \S+ for kernel (\S+)")
SHOWN = 5


class Failure(NamedTuple):
    """A build that failed: the log, the kernel (empty where the log does not say), the first errors."""

    log: str
    kernel: str
    errors: List[str]

    @property
    def words(self) -> str:
        """``for kernel 6.17.9 (/var/lib/dkms/…/make.log)``."""
        return "%s(%s)" % ("for kernel %s " % self.kernel if self.kernel else "", self.log)

    @property
    def module(self) -> str:
        """``nvidia/595.91.07``, as dkms takes it."""
        return "/".join(self.log[len(TREE) + 1 :].split("/")[:2])

    @property
    def of_driver(self) -> bool:
        """Whether it is NVIDIA's; DKMS builds the modules of all packages for a new kernel, and fails with any."""
        return any(fnmatchcase(self.module.partition("/")[0], name) for name in NAMES)


def failures(host: Host, said: str, version: str) -> list[Failure]:
    """The builds of a driver version that failed, by the log that the tool named, else by the logs that are there.

    Args:
        host: The node.
        said: Output of apt; DKMS writes ``Consult /var/lib/dkms/nvidia/VERSION/build/make.log``.
        version: The driver's own version.
    """
    named = [log for log in re.findall(r"(/var/lib/dkms/\S+?/make\.log)", said) if host.exists(log)]
    found = [failure(log, host.read(log) or "") for log in dict.fromkeys(named or _logs(host, version))]
    return [one for one in found if one.errors]


def _logs(host: Host, version: str) -> list[str]:
    return [
        "%s/%s/build/make.log" % (tree, version)
        for name in NAMES
        for tree in host.match(TREE, name)
        if host.exists("%s/%s/build/make.log" % (tree, version))
    ]


def failure(log: str, text: str) -> Failure:
    """The kernel, and the first lines with errors: what follows them is mostly their consequence."""
    head = HEAD.search(text)
    kernel = head.group(1) if head else ""
    errors = [line.strip() for line in text.splitlines() if ERROR.search(line) and not line.startswith("#")]
    first = [line for line in errors if "error:" in line] or errors
    return Failure(log, kernel, first[:SHOWN])


def without_module(host: Host, kernels: list[str]) -> list[str]:
    """Those kernels for which there is no module of the driver on disk."""
    return [kernel for kernel in kernels if not _has_module(host, "%s/%s" % (MODULES, kernel))]


def _has_module(host: Host, tree: str) -> bool:
    places = ("updates/dkms", "updates", "extra", "weak-updates", "kernel/drivers/video")
    found = any(host.match("%s/%s" % (tree, place), "nvidia*.ko*") for place in places)
    prebuilt = host.match(tree + "/kernel", "nvidia-[0-9]*")
    return found or any(host.match(place, "nvidia.ko*") for place in prebuilt)


def bootable(host: Host, running: str) -> list[str]:
    """The running kernel, and the one that boots next where that is another: the newest of its flavour."""
    there = [path.rpartition("/vmlinuz-")[2] for path in host.match("/boot", "vmlinuz-*")]
    newest = newest_of_flavour(running, [kernel for kernel in there if host.is_dir("%s/%s" % (MODULES, kernel))])
    return list(dict.fromkeys((running, newest or running)))


def has_headers(host: Host, kernel: str) -> bool:
    """Whether modules can be built for a kernel."""
    return host.exists("%s/%s/build" % (MODULES, kernel))
