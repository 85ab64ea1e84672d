"""Everything a node is, in one answer. Reads only; what cannot be read is unknown and noted, never absent."""

from __future__ import annotations

from . import apt, boot, dpkg, installs, network, nvidia, pci, rpm, storage, system
from .environments import PREFIX
from .host import Host, NodeError


def collect(host: Host, args: dict[str, object]) -> dict[str, object]:
    """The facts, in the shape of the controller's schema.

    Args:
        host: The machine.
        args: ``{"packages": [names whose versions are wanted], "environments": their prefix}``; ``{kernel}`` in a name
            means the running kernel.
    """
    prefix = args.get("environments", PREFIX)
    if not isinstance(prefix, str) or not prefix.startswith("/"):
        raise NodeError("bad-request", "args.environments is an absolute path")
    asked = args.get("packages", [])
    if not isinstance(asked, list) or not all(isinstance(name, str) for name in asked):
        raise NodeError("bad-request", "args.packages is a list of names")
    clock = system.time_facts(host)
    kernel, virt = system.kernel_facts(host), system.virtualization(host)
    reboot, reasons = system.reboot_facts(host, kernel, virt)
    known = dpkg.packages(host)
    names = [name.replace("{kernel}", str(kernel["running"])) for name in asked]
    devices = pci.pci_facts(host)
    facts: dict[str, object] = {
        "schema_version": 1,
        "os": system.os_facts(host),
        "kernel": kernel,
        "virtualization": virt,
        "cpu": system.cpu_facts(host),
        "memory": system.memory_facts(host),
        "filesystems": storage.filesystem_facts(host),
        "pci": devices,
        "bridges": pci.bridge_facts(host, devices),
        "secure_boot": pci.secure_boot(host),
        "nvidia": nvidia.nvidia_facts(host),
        "boot": boot.boot_facts(host, kernel, virt),
        "package_manager": _package_manager(host, names, known),
        "network": network.network_facts(host),
        "time": clock,
        "reboot_required": reboot,
        "reboot_reasons": reasons,
        "installs": installs.install_facts(host, known, prefix),
        "unattended_upgrades": apt.unattended(host, known),
        "root": host.is_root,
        **system.identity(host),
    }
    if not host.is_root:
        host.note("not run as root: what only root can read is unknown")
    facts["notes"] = host.notes
    return facts


def collect_boot(host: Host) -> dict[str, object]:
    """As much of the facts as it takes to decide about a reboot; a role's run asks for it more than once."""
    kernel, virt = system.kernel_facts(host), system.virtualization(host)
    return {**_machine(host, kernel, virt), "boot": boot.boot_facts(host, kernel, virt), "notes": host.notes}


def collect_hardware(host: Host) -> dict[str, object]:
    """As much of the facts as a certificate says of the machine; nothing is run that a broken GPU could stop."""
    found = _machine(host, system.kernel_facts(host), system.virtualization(host))
    return {**found, "cpu": system.cpu_facts(host), "memory": system.memory_facts(host), "notes": host.notes}


def _machine(host: Host, kernel: dict[str, object], virt: str) -> dict[str, object]:
    return {
        "schema_version": 1,
        "os": system.os_facts(host),
        "kernel": kernel,
        "virtualization": virt,
        "pci": pci.pci_facts(host),
        "secure_boot": pci.secure_boot(host),
        "nvidia": nvidia.loaded(host),
        "root": host.is_root,
        **system.identity(host),
    }


def _package_manager(host: Host, names: list[str], known: dict[str, dpkg.Package] | None) -> dict[str, object]:
    if known is not None:
        return apt.package_facts(host, names, known)
    return rpm.package_facts(host, names) if any(map(host.exists, rpm.DNF)) else {"kind": "unknown"}
