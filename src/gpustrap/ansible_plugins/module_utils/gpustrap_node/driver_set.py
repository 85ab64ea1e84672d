"""Which packages are parts of NVIDIA's driver, and of which branch, flavour and kind one is; by their names alone."""

from __future__ import annotations

import re
from typing import NamedTuple

# Those of containers, of the CUDA toolkit and of GPUDirect Storage have other versions and other owners.
_DRIVER = re.compile(
    r"(nvidia|firmware-nvidia|libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libnvsdm|libnvidia|nvlink5"
    r"|lib(egl|gl1?|gles\d?\w*|glx)-nvidia\w*|glx-alternative-nvidia|xserver-xorg-video-nvidia"
    r"|linux-(modules|objects|signatures)-nvidia|cuda-drivers)(?![a-z0-9])"
    r"(?!-(container|ctk|cuda-(toolkit|dev|doc|gdb)|cudnn|docker|fs|gds))"
)
_MODULES = re.compile(r"nvidia-(\S+-)?(?<!no-)dkms(-\S+)?|nvidia-(\S+-)?kernel-source(-\S+)?|linux-modules-nvidia-\S+")
_BRANCH = re.compile(r"-(\d{3})(?:xx)?(?=-|$)")
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d+){1,2})(?![\d.])")
# What role nvidia_fabric_manager installs and holds, always in the driver's version.
_FABRIC = re.compile(r"(nvidia-fabricmanager|nvidia-imex|libnvidia-nscq)(-\d{3})?\Z")
PINNING = re.compile(r"nvidia-driver-pinning(-|\Z)")

# apt's own patterns for the same packages; the form of a driver's version tells what else has nvidia in its name.
GLOBS = "*nvidia* cuda-drivers* libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1 libnvsdm* libxnvctrl* nvlink5*"
ANY_DRIVER_VERSION = "/^[0-9][0-9][0-9][.]/"  # a pattern that ends with * is only compared as a prefix


def is_driver(name: str) -> bool:
    """Whether a package is a part of the driver."""
    return bool(_DRIVER.match(name))


def is_fabric(name: str) -> bool:
    """Whether a part of the driver is one of NVLink's and NVSwitches', which has a role of its own."""
    return bool(_FABRIC.match(name))


def upstream(version: str) -> str:
    """``595.91.07-1`` -> ``595.91.07``; empty where a package's version is none of the driver's."""
    found = _UPSTREAM.match(version)
    return found.group(1) if found else ""


class Wanted(NamedTuple):
    """The driver as it is locked.

    Attributes:
        branch: ``595``.
        flavour: ``open`` or ``proprietary``.
        module: How its modules come: ``dkms`` or ``prebuilt``.
        packages: Names and versions.
    """

    branch: str
    flavour: str
    module: str
    packages: dict[str, str]

    @property
    def version(self) -> str:
        """The version of its packages."""
        return next(iter(self.packages.values()), "")

    def in_the_way(self, name: str) -> str:
        """Why an installed package of the driver cannot stay beside this one; empty where it can."""
        if name in self.packages:
            return ""
        words = name.split("-")
        branch = _BRANCH.search(name)
        if PINNING.match(name):
            return "pins another way"
        if branch and branch.group(1) != self.branch:
            return "is of branch %s" % branch.group(1)
        if self.flavour == "proprietary" and "open" in words:
            return "is of the open flavour"
        if self.flavour == "open" and name.startswith("cuda-drivers"):
            return "is of the proprietary flavour"
        return self._other_module(name, words) if _MODULES.match(name) else ""

    def _other_module(self, name: str, words: list[str]) -> str:
        if self.flavour == "open" and "open" not in words:
            return "has modules of the proprietary flavour"
        if name.startswith("linux-") != (self.module == "prebuilt"):
            return "has modules of another kind"
        server = any("server" in one.split("-") for one in self.packages)
        if _BRANCH.search(name) and any(_BRANCH.search(one) for one in self.packages) and server != ("server" in words):
            return "has modules of another series"
        return ""
