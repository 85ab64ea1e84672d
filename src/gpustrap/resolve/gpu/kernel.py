"""What a node's kernel is called in names of packages, and which kernel packages are for."""

from __future__ import annotations

import re

from gpustrap.catalog.schema import Distro


def release(kernel: str) -> tuple[int, ...]:
    """Every number in it: 6.8.0-117-generic is later than 6.8.0-40-generic."""
    return tuple(int(number) for number in re.findall(r"\d{1,9}", kernel))


def kernel_flavour(running: str, distro: Distro) -> str:
    """``6.17.0-14-generic`` on Ubuntu 24.04 -> ``generic-hwe-24.04``.

    Empty for every kernel that is none of the distribution's, as far as the catalog knows those: there are no
    metapackages for it.

    Args:
        running: ``uname -r``.
        distro: The node's distribution.
    """
    own = re.match(distro.kernel_release, running)
    flavour = running[own.end() :] if own else ""
    later = distro.kernel_ga and release(running)[:2] > release(distro.kernel_ga)
    if later and flavour + distro.kernel_hwe in distro.kernel_flavours:
        return flavour + distro.kernel_hwe
    return flavour if flavour in distro.kernel_flavours else ""


def is_foreign(running: str, distro: Distro) -> bool:
    """Whether a kernel is none of the distribution's: Proxmox's, a mainline build, somebody's own."""
    return bool(distro.kernel_flavours) and not kernel_flavour(running, distro)


def served_kernel(version: str, flavour: str, distro: Distro) -> str:
    """The kernel that the prebuilt modules of a flavour are for, by the version of their metapackage.

    ``6.8.0-90.91~22.04.1+1`` of ``generic-hwe-22.04`` -> ``6.8.0-90-generic``; empty where the version does not tell.
    """
    built_for = re.match(r"\d+\.\d+\.\d+-\d+", version)
    return f"{built_for[0]}-{flavour.removesuffix(distro.kernel_hwe)}" if built_for else ""
