"""The one place that decides about reboots: from what is loaded, what is on the disk, and what programs use.

A reboot only helps where the next boot loads what the programs expect. Where it would not, the decision says what to
mend first; it is never tried in the hope that it helps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from gpustrap.model.facts import BootKernelFacts, Facts

CONTAINERS = frozenset({"docker", "podman", "lxc", "systemd-nspawn", "wsl"})  # clock and kernel are the host's
CONSOLE = (
    "open the screen or BMC console of {node}; then, on the node: sudo systemctl reboot. Within ten seconds of the "
    "blue screen press a key; choose Enroll MOK, Continue, Yes; type the one-time password; choose Reboot. "
    "Then: gpustrap apply {node}"
)
REBOOT = "gpustrap apply --reboot {node}"
RIVALS = frozenset({"nouveau", "nova_core", "nvidiafb"})


class Need(StrEnum):
    """What is to be done about the running system."""

    NONE = "none"  # what runs is what is installed
    REBOOT = "reboot"
    PERSON = "person"  # somebody has to enrol a key at the console, in a boot of theirs
    USELESS = "useless"  # what is installed is wrong, and a reboot would not help
    NEXT_BOOT = "next-boot"  # it runs now, but the next boot would have no driver


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the lock has.

    Attributes:
        version: Of the driver; empty asks for no certain one.
        mok: Whether a person may be asked to enrol a key.
    """

    version: str = ""
    mok: bool = False


ANY = Wanted()


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, and why.

    Attributes:
        code: Stable; docs/reboots.md lists them.
        reason: One sentence without a full stop.
        evidence: The versions that it rests on.
        remedy: The next command or act where gpustrap itself cannot go on; ``{node}`` is its name.
        target: What a reboot is to bring. The same target is not booted for twice: that it did not help is known then.
    """

    need: Need
    code: str
    reason: str
    evidence: str = ""
    remedy: str = ""
    target: str = ""

    def next_step(self, node: str = "") -> str:
        """The remedy for a node; without its name where the reader knows which is meant."""
        named = self.remedy.replace("{node}", node)
        return named if node else re.sub(r"^on \{node\}: |( of)? \{node\}", "", self.remedy)

    @property
    def loaded(self) -> bool:
        """Whether the driver that is installed runs."""
        return self.code in {"driver-runs", "driver-of-host"} or self.need is Need.NEXT_BOOT


def decide_driver(facts: Facts, wanted: Wanted = ANY) -> Decision:
    """Whether the installed driver needs a reboot.

    Args:
        facts: What the node is now.
        wanted: What it should have.
    """
    boot, loaded = facts.boot, facts.nvidia.module
    coming = boot.kernel(boot.next or facts.kernel.running)
    if not boot.library and not loaded and not coming.module:
        return Decision(Need.NONE, "driver-absent", "no NVIDIA driver is installed")
    if facts.virtualization in CONTAINERS and loaded and not any(k.module for k in boot.kernels):
        found = _in_container(facts)
    else:
        found = _on_machine(facts, coming, wanted)
    return replace(found, evidence=_versions(facts, coming))


LOOK = "on the node: sudo modprobe nvidia; sudo journalctl -k -b | grep -iE 'nvrm|nvidia|nouveau'"


def after_reboot(decision: Decision, what: str) -> Decision:
    """The same need after the reboot that should have met it: it is looked into, not tried again.

    Args:
        decision: What would be done if it had not been done already.
        what: What was done, in a sentence.
    """
    remedy = f"{LOOK}; then sudo systemctl reboot there, and gpustrap apply {{node}}"
    return replace(decision, need=Need.USELESS, code="reboot-loop", reason=f"{what}: {decision.reason}", remedy=remedy)


def _on_machine(facts: Facts, coming: BootKernelFacts, wanted: Wanted) -> Decision:
    library, loaded = facts.boot.library, facts.nvidia.module
    if wanted.version and library != wanted.version:
        there = library or "not there"
        reason = f"the driver's libraries are {there}, the lock has {wanted.version}: the packages come first"
        return _useless("driver-packages", reason, "gpustrap apply {node}")
    wrong = _wrong_at_boot(facts, coming, wanted)
    if _runs(facts):
        if wrong:
            reason = f"the driver runs, but the next boot would be without it: {wrong.reason}"
            return replace(wrong, need=Need.NEXT_BOOT, reason=reason)
        return Decision(Need.NONE, "driver-runs", f"driver {loaded} runs, and is what is installed")
    target = f"driver {coming.version} {coming.flavour or ''} on kernel {coming.release}, libraries {library}"
    return wrong or Decision(Need.REBOOT, "driver-reboot", _why(facts, coming), remedy=REBOOT, target=target)


def decide_kernel(facts: Facts) -> Decision:
    """Whether another kernel has to run before a driver can be built: the headers of the running one are not there.

    Where they can be had, or nothing better is installed, the packages of the driver bring what they need.
    """
    running, coming = facts.kernel.running, facts.boot.next
    able = {*facts.kernel.headers, *(k.release for k in facts.boot.kernels if k.module)}
    if running in able or coming in {"", running} or coming not in able:
        return Decision(Need.NONE, "kernel-stays", f"kernel {running} stays")
    reason = f"there are no headers for the running kernel {running}, but for {coming}, which boots next"
    return Decision(Need.REBOOT, "kernel-reboot", reason, remedy=REBOOT, target=f"kernel {coming}")


def decide_removal(facts: Facts) -> Decision:
    """Whether the driver whose packages are gone still runs: only a reboot ends that without breaking anything."""
    loaded, boot = facts.nvidia.module, facts.boot
    if not loaded or any(kernel.module for kernel in boot.kernels):
        return Decision(Need.NONE, "driver-stays" if loaded else "driver-absent", "no removed driver is loaded")
    if facts.virtualization in CONTAINERS and not boot.kernels:
        return Decision(Need.NONE, "driver-of-host", f"driver {loaded} of the container's host runs")
    reason = f"driver {loaded} is removed, and loaded until the next boot"
    return Decision(
        Need.REBOOT,
        "removed-driver-loaded",
        reason,
        remedy="gpustrap remove driver {node} --reboot",
        target=f"no driver instead of {loaded}, kernel {boot.next or facts.kernel.running}",
    )


def _runs(facts: Facts) -> bool:
    """Whether the loaded module is that of the libraries, of the flavour on disk, and has not lost its GPUs."""
    here = facts.boot.kernel(facts.kernel.running)
    flavours = {facts.nvidia.flavour, here.flavour or facts.nvidia.flavour}
    held = any(gpu.vendor == "10de" and gpu.driver in RIVALS for gpu in facts.gpus)
    return facts.nvidia.module == facts.boot.library != "" and len(flavours) == 1 and not held


def _why(facts: Facts, coming: BootKernelFacts) -> str:
    held = sorted({gpu.driver for gpu in facts.gpus if gpu.vendor == "10de" and gpu.driver in RIVALS} - {None})
    if held:
        return f"{' and '.join(map(str, held))} drives the GPUs until the next boot"
    if not facts.nvidia.module:
        return f"driver {coming.version} is installed and not loaded"
    if facts.nvidia.module == facts.boot.library:
        return f"the {facts.nvidia.flavour} module is loaded, the {coming.flavour} one is installed"
    return f"driver {facts.nvidia.module} is loaded, {facts.boot.library} is installed"


def _wrong_at_boot(facts: Facts, coming: BootKernelFacts, wanted: Wanted) -> Decision | None:
    """Why the next boot would not have the driver; None where it would."""
    library, release = facts.boot.library, coming.release
    if not coming.module:
        reason = f"kernel {release}, which boots next, has no NVIDIA module"
        headers = f"on {{node}}: sudo apt-get install linux-headers-{release} && sudo dkms autoinstall -k {release}"
        built = release in facts.kernel.headers
        return _useless("kernel-moved-no-module", reason, "gpustrap apply {node}" if built else headers)
    if coming.built_for and coming.built_for != release:
        reason = f"the module of kernel {release} was built for {coming.built_for}, which {release} refuses to load"
        return _useless("module-of-other-kernel", reason, f"on {{node}}: sudo dkms autoinstall -k {release}")
    if coming.version != library:
        have = f"the libraries are {library}" if library else "the libraries are not there"
        reason = f"the module on disk is {coming.version or 'of no known version'}, {have}: a reboot changes neither"
        return _useless("driver-lib-mismatch", reason, "gpustrap apply {node}, which installs both in one version")
    if coming.rivals and any(gpu.vendor == "10de" for gpu in facts.gpus):
        return _useless("rival-driver", "; ".join(coming.rivals), "gpustrap apply {node}, which rebuilds the initramfs")
    return _unsigned(facts, coming, wanted)


def _unsigned(facts: Facts, coming: BootKernelFacts, wanted: Wanted) -> Decision | None:
    """What Secure Boot has against the module; keys of others are not looked up, as distributions have many."""
    mok = facts.boot.mok
    if not facts.secure_boot.enabled:
        return None
    if not coming.signer:
        reason = f"Secure Boot is on, and the module of kernel {coming.release} is not signed"
        again = f"sudo dkms install --force nvidia/{coming.version} -k {coming.release}"
        return _useless(
            "secureboot-unsigned", reason, f"on {{node}}: sudo apt-get install openssl && {again}, which signs it"
        )
    if not coming.own_key or mok.enrolled is not False:
        return None
    reason = f'Secure Boot is on, and its key "{mok.subject}" is not enrolled: a person has to do that at the console'
    if not wanted.mok and not mok.requested:
        return _useless("secureboot-mok", reason, "set gpustrap_driver_mok: true, then gpustrap apply {node} --replan")
    return Decision(Need.PERSON, "secureboot-mok", reason, remedy=CONSOLE)


def _in_container(facts: Facts) -> Decision:
    """A container uses the module of its host, whatever it has installed itself."""
    loaded, library = facts.nvidia.module, facts.boot.library
    if loaded == library:
        return Decision(Need.NONE, "driver-of-host", f"driver {loaded} of the container's host runs")
    reason = f"the container's host runs driver {loaded}, the libraries here are {library or 'not there'}"
    return _useless("driver-lib-mismatch", reason, f"install the libraries of {loaded} in the container")


def _useless(code: str, reason: str, remedy: str) -> Decision:
    return Decision(Need.USELESS, code, reason, remedy=remedy)


def _versions(facts: Facts, coming: BootKernelFacts) -> str:
    """The three versions, one a line."""
    nvidia, running = facts.nvidia, facts.kernel.running
    here = facts.boot.kernel(running)
    lines = [
        f"loaded: {f'{nvidia.module} {nvidia.flavour}' if nvidia.module else 'none'}",
        f"module on disk, kernel {running}: {_module(here)}",
        f"libraries: {facts.boot.library or 'none'}",
    ]
    if coming.release != running:
        lines.insert(2, f"module on disk, kernel {coming.release} (boots next): {_module(coming)}")
    return "\n".join(lines)


def _module(kernel: BootKernelFacts) -> str:
    return f"{kernel.version} {kernel.flavour or ''}".strip() if kernel.module else "none"
