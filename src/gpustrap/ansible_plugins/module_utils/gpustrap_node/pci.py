"""GPUs, NVSwitches and the bridges above them from sysfs, and Secure Boot: all readable before any driver exists."""

from __future__ import annotations

import re
from functools import partial

from . import acs
from .host import Host

DEVICES = "/sys/bus/pci/devices"
GPUS = ("0300", "0302", "0380", "1200")  # VGA, 3D, other displays; processing accelerators, as AMD's Instinct
BRIDGE = "0680"  # NVIDIA's are NVSwitches
NVIDIA = "10de"
PROC_GPUS = "/proc/driver/nvidia/gpus"  # what the loaded driver says of each, without waking it
UUID = re.compile(r"^GPU UUID:\s+(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$", re.MULTILINE)
ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z")
ROOT_BUS = re.compile(r"(?:^|/)pci[0-9a-f]{4,8}:[0-9a-f]{2}/")
MEMORY_BAR = 0x200  # IORESOURCE_MEM
UNSET = 0x20000000  # IORESOURCE_UNSET
BARS = 6
EFIVARS = "/sys/firmware/efi/efivars"
SECURE_BOOT = EFIVARS + "/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM_OFF = EFIVARS + "/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"


def pci_facts(host: Host) -> list[dict[str, object]]:
    """Every display, 3D device and accelerator, and NVIDIA's NVSwitches, by address."""
    found: list[dict[str, object]] = []
    for address in host.names(DEVICES):
        here = "%s/%s/" % (DEVICES, address)
        vendor, kind = _hex(host, here + "vendor"), host.line(here + "class")[2:6].lower()
        if kind not in GPUS and not (kind == BRIDGE and vendor == NVIDIA):
            continue
        resource = host.read(here + "resource") or ""
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
                "bars": parse_bars(resource),
                "bars_unassigned": parse_unassigned(resource),
                "numa_node": _numa(host.line(here + "numa_node")),
                "bridges": _bridges(host, address),
                "iommu_type": host.line(here + "iommu_group/type") or None,
                "uuid": parse_uuid(host.read("%s/%s/information" % (PROC_GPUS, address)) or ""),
            }
        )
    return found


def bridge_facts(host: Host, devices: list[dict[str, object]]) -> list[dict[str, object]]:
    """Every bridge above one of the devices, by address."""
    found: list[dict[str, object]] = []
    for address in sorted({bridge for device in devices for bridge in _bridges(host, str(device["address"]))}):
        here = "%s/%s/" % (DEVICES, address)
        found.append(
            {
                "address": address,
                "vendor": _hex(host, here + "vendor"),
                "device": _hex(host, here + "device"),
                "link_width": parse_width(host.line(here + "current_link_width")),
                "link_width_max": parse_width(host.line(here + "max_link_width")),
                "link_speed_max": parse_speed(host.line(here + "max_link_speed")),
                "acs_redirect": acs.parse_redirect(partial(host.read_at, here + "config")),
            }
        )
    return found


def _bridges(host: Host, address: str) -> list[str]:
    return parse_bridges(host.readlink("%s/%s" % (DEVICES, address)) or "")


def _hex(host: Host, path: str) -> str:
    text = host.line(path).lower()
    return text[2:] if text.startswith("0x") else text


def _numa(text: str) -> int | None:
    return int(text) if text.isdecimal() else None  # -1: the firmware does not say


def parse_address(text: str) -> str:
    """Sysfs's spelling of a PCI address: NVIDIA's 00000000:0A:00.0 is 0000:0a:00.0; empty if it is none."""
    found = ADDRESS.match(text.lower())
    return "%04x:%s" % (int(found.group(1), 16), found.group(2)) if found else ""


def parse_bridges(target: str) -> list[str]:
    """Addresses of the bridges above a device, the root port first, from where its link in sysfs leads."""
    return [part for part in ROOT_BUS.split(target)[-1].split("/")[:-1] if ADDRESS.match(part)]


def parse_width(text: str) -> int | None:
    """Lanes. 0, 63 and 255 are what a device says that is not there or asleep."""
    lanes = int(text) if text.isdecimal() else 0
    return lanes if lanes in (1, 2, 4, 8, 12, 16, 32) else None


def parse_speed(text: str) -> float | None:
    """GT/s: ``16.0 GT/s PCIe`` -> 16.0; ``Unknown`` -> None."""
    found = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    return float(found.group(1)) if found else None


def parse_uuid(text: str) -> str:
    """The UUID of a GPU; empty where the driver does not know it yet and shows question marks."""
    found = UUID.search(text)
    return found.group(1) if found else ""


def parse_bars(text: str) -> list[int]:
    """Sizes in bytes of the memory BARs, from a sysfs ``resource`` file."""
    return [end - start + 1 for start, end, _ in _memory_bars(text) if end > start]


def parse_unassigned(text: str) -> int:
    """How many memory BARs got no address: Above 4G Decoding is off, or there is no room left."""
    return sum(1 for start, end, flags in _memory_bars(text) if flags & UNSET or (start == 0 and end > 0))


def _memory_bars(text: str) -> list[tuple[int, int, int]]:
    """Start, end and flags."""
    found = []
    for line in text.splitlines()[:BARS]:
        try:
            start, end, flags = (int(word, 16) for word in line.split())
        except ValueError:
            continue
        if flags & MEMORY_BAR:
            found.append((start, end, flags))
    return found


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
