"""The tree of a simulated machine as Linux shows it: PCI devices in sysfs, the driver in procfs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpustrap.lab.gpus.machine import Gpu, Machine

SPEEDS = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
MIB = 1 << 20
# Flags of <linux/ioport.h>: memory, prefetchable, 64-bit, and what the kernel could not place.
MEM32, MEM64_PREFETCH, UNSET, IO = 0x40200, 0x14220C, 0x20000000, 0x40101
LINES = 13  # six BARs, the ROM, and a bridge's windows
# NVIDIA's modules and by how many others each is used while nobody computes.
MODULES = {"nvidia": 2, "nvidia_uvm": 0, "nvidia_modeset": 1, "nvidia_drm": 0}
AMD_PORT, BROADCOM_SWITCH = ("0x1022", "0x1483"), ("0x1000", "0xc030")  # pci.ids: Starship GPP bridge; PEX890xx


@dataclass(frozen=True, slots=True)
class Device:
    """A PCI device: where it is in the tree, and its files."""

    path: str
    files: dict[str, str | bytes]
    driver: str = ""

    @property
    def address(self) -> str:
        """As sysfs spells it."""
        return self.path.rpartition("/")[2]


def devices(there: Machine) -> tuple[Device, ...]:
    """Every PCI device of the machine that has to do with its GPUs, the bridges included."""
    found: dict[str, Device] = {}
    bound = {at for at, _ in there.bound()}
    for at, gpu in there.present():
        above = _above(gpu.address, switch=gpu.switch)
        redirect = there.fault("acs", at) is not None
        for device in (*_bridges(above, gpu, redirect=redirect), *_gpu(there, at, gpu, "/".join(above), at in bound)):
            found[device.path] = device
    switches = there.nvswitches
    for address in switches.addresses if switches else ():
        above = _above(address, switch=False)
        for device in (*_bridges(above, None), _nvswitch(there, address, "/".join(above))):
            found[device.path] = device
    return tuple(found.values())


def write(root: Path, there: Machine, links: str = "../../../devices") -> None:
    """Write the machine's tree below a directory.

    Args:
        root: What stands for ``/``.
        there: The machine.
        links: Where the links in ``/sys/bus/pci/devices`` lead; an absolute path where the tree is mounted elsewhere.
    """
    (root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    for device in devices(there):
        here = root / "sys/devices" / device.path
        here.mkdir(parents=True, exist_ok=True)
        for name, content in device.files.items():
            (here / name).parent.mkdir(exist_ok=True)
            (here / name).write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
        (root / "sys/bus/pci/devices" / device.address).symlink_to(f"{links}/{device.path}")
        if device.driver:
            (root / "sys/bus/pci/drivers" / device.driver).mkdir(parents=True, exist_ok=True)
            up = "../" * (device.path.count("/") + 2)
            (here / "driver").symlink_to(f"{up}bus/pci/drivers/{device.driver}")
    for path, words in driver_files(there).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(words, encoding="ascii")


def driver_files(there: Machine) -> dict[str, str]:
    """The files of a loaded module below ``/proc/driver/nvidia`` and ``/sys/module``; none where none is loaded."""
    driver = there.driver
    version = there.fault("version-mismatch") or (driver.module if driver else "")
    if there.nouveau:
        return {"sys/module/nouveau/refcnt": "1\n", "sys/module/nouveau/initstate": "live\n"}
    if driver is None or not version:
        return {}
    kind = "NVIDIA UNIX x86_64 Kernel Module"
    built = ""
    if driver.flavour == "open":
        kind, built = "NVIDIA UNIX Open Kernel Module for x86_64", "  Release Build  (gpustrap-lab@simulated)"
    found = {
        "proc/driver/nvidia/version": f"NVRM version: {kind}  {version}{built}  Mon Jun  1 00:00:00 UTC 2026\n"
        "GCC version:  gcc version 14.2.0 (Debian 14.2.0-19)\n",
        "proc/driver/nvidia/params": "RmLogonRC: 1\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n",
        **{
            f"sys/module/{name}/{file}": f"{value}\n"
            for name, users in MODULES.items()
            for file, value in {"version": version, "refcnt": users, "initstate": "live"}.items()
        },
    }
    for index, (_, gpu) in enumerate(there.bound()):
        found[f"proc/driver/nvidia/gpus/{gpu.address}/information"] = (
            f"Model: \t\t {gpu.board.data['name']}\nGPU UUID: \t {gpu.uuid}\nVideo BIOS: \t {gpu.board.data['vbios']}\n"
            f"Bus Type: \t PCIe\nBus Location: \t {gpu.address}\nDevice Minor: \t {index}\n"
        )
    return found


def path_above(gpu: Gpu) -> tuple[str, ...]:
    """The host bridge and the bridges above a GPU, as sysfs names them."""
    return tuple(_above(gpu.address, switch=gpu.switch))


def _above(address: str, *, switch: bool) -> list[str]:
    """The root bus and the bridges above an address, the root port first."""
    bus, slot = int(address[5:7], 16), address[8:]
    root = bus & 0xE0
    found = [f"pci0000:{root:02x}"]
    if bus == root:
        return found  # on the root bus itself, as in virtual machines
    found.append(f"0000:{root:02x}:{(bus & 0x1F):02x}.1")
    if switch:
        found += [f"0000:{bus - 2:02x}:00.0", f"0000:{bus - 1:02x}:{slot}"]
    return found


def _bridges(above: list[str], gpu: Gpu | None, *, redirect: bool = False) -> Iterator[Device]:
    for depth in range(1, len(above)):
        vendor, device = AMD_PORT if depth == 1 else BROADCOM_SWITCH
        gen = gpu.board.data["gen"] if gpu else 4
        yield Device(
            "/".join(above[: depth + 1]),
            {
                "vendor": vendor,
                "device": device,
                "subsystem_vendor": vendor,
                "subsystem_device": device,
                "class": "0x060400",
                "revision": "0x00",
                "numa_node": str(gpu.numa if gpu else 0),
                "resource": _resource({}, "", assigned=True),
                "config": _config(vendor, device, 0x060400, redirect=redirect),
                **_link(gen, gpu.width if gpu else 16, gen, 16),
            },
            "pcieport",
        )


def _gpu(there: Machine, at: int, gpu: Gpu, above: str, bound: bool) -> Iterator[Device]:
    row = gpu.board.data
    vendor, subsystem = (f"0x{part}" for part in row["subsystem"].split(":"))
    lost = there.fault("lost", at) is not None
    active = row["clocks"]["memory_idle"] == row["clocks"]["memory_max"]
    gen = int(there.fault("slow-link", at) or (row["gen"] if active else 1))
    width = int(there.fault("narrow", at) or gpu.width)
    common: dict[str, str | bytes] = {
        "vendor": "0x10de",
        "subsystem_vendor": vendor,
        "subsystem_device": subsystem,
        "revision": "0xa1",
        "numa_node": str(gpu.numa),
        **_link(gen, width, row["gen"], row["width"]),
    }
    if there.fault("acs", at) is not None:
        common["iommu_group/type"] = "DMA"
    if lost:
        common |= {"current_link_speed": "Unknown", "current_link_width": "63"}
    device = f"0x{row['device']}"
    yield Device(
        f"{above}/{gpu.address}",
        common
        | {
            "device": device,
            "class": f"0x{row['class']}",
            "resource": _resource(row["bars"], gpu.address, assigned=there.fault("bars-unassigned", at) is None),
            "config": b"\xff" * 256 if lost else _config("0x10de", device, int(row["class"], 16)),
        },
        "nvidia" if bound else "nouveau" if there.nouveau else "",
    )
    if "audio" in row:
        sound = f"0x{row['audio']}"
        yield Device(
            f"{above}/{gpu.address[:-1]}1",
            common
            | {
                "device": sound,
                "class": "0x040300",
                "resource": _resource({}, "", assigned=True),
                "config": _config("0x10de", sound, 0x040300),
            },
            "snd_hda_intel",
        )


def _nvswitch(there: Machine, address: str, above: str) -> Device:
    switches = there.nvswitches
    assert switches is not None  # noqa: S101 - the caller has them
    vendor, subsystem = (f"0x{part}" for part in switches.subsystem.split(":"))
    device = f"0x{switches.device}"
    loaded = bool(there.driver and there.driver.module)
    return Device(
        f"{above}/{address}",
        {
            "vendor": "0x10de",
            "device": device,
            "subsystem_vendor": vendor,
            "subsystem_device": subsystem,
            "class": "0x068000",
            "revision": "0xa1",
            "numa_node": "0",
            "resource": _resource({0: 32}, address, assigned=True),
            "config": _config("0x10de", device, 0x068000),
            **_link(switches.gen, switches.width, switches.gen, switches.width),
        },
        "nvidia-nvswitch" if loaded else "",
    )


def _link(gen: int, width: int, gen_max: int, width_max: int) -> dict[str, str | bytes]:
    return {
        "current_link_speed": SPEEDS[gen],
        "current_link_width": str(width),
        "max_link_speed": SPEEDS[gen_max],
        "max_link_width": str(width_max),
    }


def _resource(bars: dict[int, int], address: str, *, assigned: bool) -> str:
    """Lines of sysfs's ``resource``: first and last address and the flags of every BAR."""
    lines = ["0x" + " 0x".join(["0" * 16] * 3)] * LINES
    bus = int(address[5:7], 16) if address else 0
    start = (0x20 + bus) << 40
    for number, size in sorted(bars.items(), key=lambda bar: -bar[1]):
        wide = number > 0
        first = start if wide else 0x80000000 + (bus << 26)
        flags = MEM64_PREFETCH if wide else MEM32
        if not assigned and wide:
            first, flags = 0, flags | UNSET
        lines[number] = f"0x{first:016x} 0x{first + size * MIB - 1:016x} 0x{flags:016x}"
        start += size * MIB if wide else 0
    return "\n".join(lines)


def _config(vendor: str, device: str, kind: int, *, redirect: bool = False) -> bytes:
    """Configuration space: the header; of a bridge 4 KiB, with ACS there and switched off, or with its redirects on."""
    bridge = kind >> 8 == 0x0604
    head = struct.pack("<HHHHI", int(vendor, 16), int(device, 16), 0x0406, 0x0010, kind << 8 | 0xA1)
    space = bytearray(head.ljust(4096 if bridge else 256, b"\0"))
    space[0x0E] = 1 if bridge else 0
    if bridge:
        space[0x100:0x104] = struct.pack("<I", 0x000D | 1 << 16)
        space[0x106:0x108] = struct.pack("<H", 0x1D if redirect else 0)
    return bytes(space)
