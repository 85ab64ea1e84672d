"""Who drives the GPUs now, and who may not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpustrap.resolve.gpu.boards import NodeGpu
from gpustrap.resolve.preflight.view import Seen, View, called, labels, note, warning

IN_KERNEL = frozenset({"nouveau", "nova_core", "nova-core", "nova"})
BLACKLISTS = re.compile(r"(?:^|\s)((?:modprobe\.blacklist|module_blacklist|rd\.driver\.blacklist)=(\S+))")


def look_at_binding(view: View) -> Iterator[Seen]:
    """GPUs of virtual machines, GPUs of other drivers, and a command line that keeps NVIDIA's out."""
    held = tuple(gpu for gpu in view.gpus if gpu.set_aside)
    if held:
        yield _passed_through(view, held)
    others: dict[str, list[NodeGpu]] = {}
    for gpu in view.driven:
        if gpu.pci.driver and gpu.pci.driver != "nvidia":
            others.setdefault(gpu.pci.driver, []).append(gpu)
    for driver, gpus in others.items():
        yield _other(driver, tuple(gpus))
    yield from _kept_out(view)


def _passed_through(view: View, held: tuple[NodeGpu, ...]) -> Seen:
    drivers = " and ".join(dict.fromkeys(str(gpu.pci.driver) for gpu in held))
    evidence = "\n".join(f"{gpu.label}: driver {gpu.pci.driver}" for gpu in held)
    if len(held) == len(view.gpus):
        message = f"all its GPUs are set aside for virtual machines ({drivers})"
        remedy = "set gpustrap_gpu: none to plan the node without a GPU stack, or take GPUs back from virtual machines"
        return view.inputs.problem("gpu-passed-through", message, remedy, evidence=evidence)
    return warning(
        "gpu-passed-through",
        called(held),
        f"set aside for virtual machines ({drivers}): NVIDIA's driver will not have them",
        evidence=evidence,
        advice="if that is not meant, take vfio-pci.ids off the kernel's command line and out of /etc/modprobe.d",
    )


def _other(driver: str, gpus: tuple[NodeGpu, ...]) -> Seen:
    if driver in IN_KERNEL:
        return note(
            "gpu-other-driver",
            called(gpus),
            f"driven by {driver} now; NVIDIA's driver takes over after a reboot",
            evidence=labels(gpus),
            advice="choose a time at which it may reboot",
        )
    return warning(
        "gpu-other-driver",
        called(gpus),
        f"driven by {driver}, which NVIDIA's driver cannot share with",
        evidence=labels(gpus),
        advice=f"find what binds {driver}: the kernel's command line, /etc/modprobe.d, a unit with driverctl",
    )


def _kept_out(view: View) -> Iterator[Seen]:
    for setting, names in BLACKLISTS.findall(view.facts.kernel.cmdline):
        if "nvidia" in names.split(","):
            yield warning(
                "driver-blacklisted",
                "kernel",
                f"its command line keeps NVIDIA's driver out: {setting}",
                evidence=f"/proc/cmdline: {view.facts.kernel.cmdline}",
                advice="take it out of GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub, and reboot",
            )
