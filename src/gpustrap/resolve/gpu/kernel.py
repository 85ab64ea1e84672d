"""The flavour of a node's kernel, as names of packages have it."""

from __future__ import annotations

from gpustrap.catalog.schema import Distro

# Flavours of which Ubuntu has a later line of kernels beside the one a release came with.
WITH_LATER_LINE = ("generic", "lowlatency")


def kernel_flavour(running: str, distro: Distro) -> str:
    """``6.17.0-14-generic`` on Ubuntu 24.04 -> ``generic-hwe-24.04``; empty for a kernel of no known flavour.

    Args:
        running: ``uname -r``.
        distro: The node's distribution.
    """
    words = running.split("-")[1:]
    while words and words[0][:1].isdigit():
        words = words[1:]
    flavour = "-".join(words)
    later = distro.kernel_ga and not running.startswith(f"{distro.kernel_ga}.")
    if later and distro.kernel_hwe and flavour in WITH_LATER_LINE:
        return flavour + distro.kernel_hwe
    return flavour
