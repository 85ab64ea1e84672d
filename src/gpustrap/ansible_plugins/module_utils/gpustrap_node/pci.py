"""Display and 3D devices and NVSwitches from sysfs, and Secure Boot: all readable before any driver exists."""

from __future__ import annotations

import re

from .host import Host

DEVICES = "/sys/bus/pci/devices"
DISPLAY = ("0300", "0302", "0380")
BRIDGE = "0680"  # NVIDIA's are NVSwitches
NVIDIA = "10de"
MEMORY_BAR = 0x200  # IORESOURCE_MEM
BARS = 6
EFIVARS = "/sys/firmware/efi/efivars"
SECURE_BOOT = EFIVARS + "/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM_OFF = EFIVARS + "/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"


def pci_facts(host: Host) -> list[dict[str, object]]:
    """Every display or 3D device, and NVIDIA's bridges, by address."""
    found: list[dict[str, object]] = []
    for address in host.names(DEVICES):
        here = "%s/%s/" % (DEVICES, address)
        vendor, kind = _hex(host, here + "vendor"), host.line(here + "class")[2:6].lower()
        if kind not in DISPLAY and not (kind == BRIDGE and vendor == NVIDIA):
            continue
        found.append(
            {
                "address": address,
                "vendor": vendor,
                "device": _hex(host, here + "device"),
                "subsystem_vendor": _hex(host, here + "subsystem_vendor"),
                "subsystem_device": _hex(host, here + "subsystem_device"),
                "pci_class": kind,
                "driver": (host.readlink(here + "driver") or "").rpartition("/")[2] or None,
                "link_width": parse_width(host.line(here + "current_link_width")),
                "link_width_max": parse_width(host.line(here + "max_link_width")),
                "link_speed": parse_speed(host.line(here + "current_link_speed")),
                "link_speed_max": parse_speed(host.line(here + "max_link_speed")),
                "bars": parse_bars(host.read(here + "resource") or ""),
                "numa_node": _numa(host.line(here + "numa_node")),
            }
        )
    return found


def _hex(host: Host, path: str) -> str:
    text = host.line(path).lower()
    return text[2:] if text.startswith("0x") else text


def _numa(text: str) -> int | None:
    return int(text) if text.isdecimal() else None  # -1: the firmware does not say


def parse_width(text: str) -> int | None:
    """Lanes. 0, 63 and 255 are what a device says that is not there or asleep."""
    lanes = int(text) if text.isdecimal() else 0
    return lanes if lanes in (1, 2, 4, 8, 12, 16, 32) else None


def parse_speed(text: str) -> float | None:
    """GT/s: ``16.0 GT/s PCIe`` -> 16.0; ``Unknown`` -> None."""
    found = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    return float(found.group(1)) if found else None


def parse_bars(text: str) -> list[int]:
    """Sizes in bytes of the memory BARs, from a sysfs ``resource`` file."""
    sizes = []
    for line in text.splitlines()[:BARS]:
        words = line.split()
        if len(words) != 3:
            continue
        try:
            start, end, flags = (int(word, 16) for word in words)
        except ValueError:
            continue
        if flags & MEMORY_BAR and end > start:
            sizes.append(end - start + 1)
    return sizes


def secure_boot(host: Host) -> dict[str, object]:
    """Whether the kernel refuses unsigned modules because of Secure Boot, and what said so."""
    state = host.read_bytes(SECURE_BOOT)
    if state:  # four bytes of attributes, one of value
        if state[-1] == 1 and (host.read_bytes(SHIM_OFF) or b"\0")[-1] == 1:
            return {"enabled": False, "source": "efivar: on, but validation is switched off in shim"}
        return {"enabled": state[-1] == 1, "source": "efivar"}
    answer = host.run(["mokutil", "--sb-state"])
    said = re.search(r"SecureBoot (enabled|disabled)", answer.stdout) if answer else None
    if said:
        return {"enabled": said.group(1) == "enabled", "source": "mokutil"}
    lockdown = re.search(r"\[(\w+)\]", host.line("/sys/kernel/security/lockdown"))
    if lockdown and lockdown.group(1) != "none":
        return {"enabled": True, "source": "kernel lockdown: " + lockdown.group(1)}
    firmware = host.names("/sys/firmware")
    if firmware and "efi" not in firmware:
        return {"enabled": False, "source": "no EFI firmware"}
    return {"enabled": None, "source": ""}
