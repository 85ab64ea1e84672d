"""The files that keep the driver where it is locked: apt's preferences, and what unattended-upgrades must not touch.

Standard library only.
"""

from __future__ import annotations

import re
from typing import Sequence

from .gpustrap_node.driver_set import ANY_DRIVER_VERSION, GLOBS, Wanted, upstream

PREFERENCES = "/etc/apt/preferences.d/gpustrap-nvidia-driver"
UPGRADES = "/etc/apt/apt.conf.d/96gpustrap-nvidia-driver"
MANAGED = "Managed by gpustrap; changes are overwritten."
HELD = "# Held by gpustrap:"
# Regular expressions, matched from the start of a name.
BLACKLIST = (
    "nvidia-",
    "libnvidia-(?!container)",
    "libcuda1",
    "libcudadebugger1",
    "cuda-drivers",
    "firmware-nvidia-",
    "xserver-xorg-video-nvidia",
    "linux-(modules|objects|signatures)-nvidia-",
)


def preferences(wanted: Wanted, pin: str, held: Sequence[str]) -> str:
    """The one place where the driver's packages may come from.

    apt takes the first entry that matches a version by the name of its package, before all that match it by origin.
    From NVIDIA's repository, which keeps every version of every branch under one name, only the locked version may
    come; from a distribution's archive its one version, which is held. Versions of other origins are refused.
    """
    entries = []
    if pin == "preferences":
        names = " ".join([*sorted(wanted.packages), *GLOBS.split()])
        entries = [
            (names, "version " + wanted.version, 1001),
            (GLOBS, "version %s-*" % upstream(wanted.version), 1000),  # another revision of it, where there is none
        ]
    else:
        entries = [(GLOBS, "release o=" + name, 500) for name in ("Debian", "Ubuntu*")]
    entries.append((GLOBS, "version " + ANY_DRIVER_VERSION, -1))
    head = ["# " + MANAGED, *(["%s %s" % (HELD, " ".join(sorted(held)))] if held else [])]
    stanzas = ["Package: %s\nPin: %s\nPin-Priority: %d" % entry for entry in entries]
    return "\n".join(head) + "\n\n" + "\n\n".join(stanzas) + "\n"


def held_by_us(text: str) -> list[str]:
    """The packages that an earlier run put on hold, as it wrote into its own preferences."""
    line = next((line for line in text.splitlines() if line.startswith(HELD)), HELD)
    return line[len(HELD) :].split()


def upgrades(metapackages: Sequence[str]) -> str:
    """What unattended-upgrades leaves alone: the driver, and the kernel's metapackages that move with it."""
    kernel = [re.escape(name).replace(r"\-", "-") + "$" for name in sorted(metapackages)]
    lines = ['    "%s";' % pattern for pattern in (*BLACKLIST, *kernel)]
    return "// %s\nUnattended-Upgrade::Package-Blacklist {\n%s\n};\n" % (MANAGED, "\n".join(lines))


def kernel_metapackages(kernel_packages: Sequence[str]) -> list[str]:
    """Metapackages of the kernel's flavour, by those of its headers or prebuilt modules; none where there are none."""
    found = set()
    for name in kernel_packages:
        flavour = re.match(r"linux-(?:headers|modules-nvidia-\d{3}(?:-server)?(?:-open)?)-([a-z][\w.-]*)\Z", name)
        if flavour and "{kernel}" not in name:
            found |= {name, *(part + flavour.group(1) for part in ("linux-", "linux-image-", "linux-headers-"))}
    return sorted(found)
