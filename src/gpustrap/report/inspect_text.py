"""The facts of nodes, for a terminal: a card for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from gpustrap.model.attention import Finding, attention, duration, nearly_full
from gpustrap.model.facts import BootKernelFacts, Facts, FilesystemFacts, NvidiaFacts, PciFacts
from gpustrap.model.reboot import CONTAINERS
from gpustrap.report.escape import one_line
from gpustrap.report.layout import Hanging, card
from gpustrap.report.next_step import next_step
from gpustrap.report.view import counted

VENDORS = {"10de": "NVIDIA", "1002": "AMD", "8086": "Intel", "1a03": "ASPEED", "102b": "Matrox", "1234": "QEMU"}
GB = 1000**3
INSTALLS = 12
MOST = 20  # of a list, on a card; what a node sends may be long


def render(nodes: Mapping[str, Facts]) -> RenderableType:
    """A card per node: what it is, and what needs attention with the next step."""
    return Group(*(part for name, facts in nodes.items() for part in _card(name, facts)))


def _card(name: str, facts: Facts) -> Iterator[RenderableType]:
    system = facts.os.pretty_name or f"{facts.os.id} {facts.os.version_id}"
    where = "" if facts.virtualization == "none" else f", {facts.virtualization}"
    yield Text.assemble((one_line(name), "bold"), "  ", one_line(f"{system}, {facts.os.architecture}{where}"))
    yield card((title, one_line(text)) for title, text in _rows(facts))
    yield _attention(attention(facts))
    yield from (Hanging(Text(f"not read: {one_line(note)}", style="dim"), "  ", "    ") for note in facts.notes[:MOST])
    yield Text()


def _rows(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "kernel", _kernel(facts)
    memory, swap = facts.memory, facts.memory.swap
    swapping = f", {_gb(swap)} swap" if swap else ""
    yield "machine", f"{facts.cpu.model or 'CPU'}, {facts.cpu.threads} threads, {_gb(memory.total)} memory{swapping}"
    yield "GPUs", gpus(facts)
    if facts.nvidia.module:
        yield "driver", _driver(facts.nvidia)
    if facts.boot.library or any(k.module for k in facts.boot.kernels):
        yield "on disk", _on_disk(facts)
    for number, text in enumerate(_pcie(facts)):
        yield "" if number else "PCIe", text
    for number, disk in enumerate(facts.filesystems[:MOST]):
        yield "" if number else "disks", _disk(disk)
    yield "packages", _packages(facts)
    yield "upgrades", _upgrades(facts)
    yield "clock", _clock(facts)
    yield "installed", _installs(facts)


def _kernel(facts: Facts) -> str:
    others = [k for k in facts.kernel.installed if k != facts.kernel.running]
    also = f"; also installed: {', '.join(others)}" if others else ""
    fixed = "; loads no modules" if facts.kernel.modules_loadable is False else ""
    secure = {True: "on", False: "off", None: "unknown"}[facts.secure_boot.enabled]
    return f"{facts.kernel.running}{also}{fixed}; Secure Boot {secure}"


def gpus(facts: Facts) -> str:
    """Alike devices together: ``8 x NVIDIA 10de:2330 (driver nvidia, x16)``."""
    cards = Counter(_gpu(gpu, listed=gpu.address not in facts.missing_from_nvml) for gpu in facts.gpus)
    switches = len(facts.pci) - len(facts.gpus)
    parts = [f"{count} x {card}" if count > 1 else card for card, count in cards.items()]
    seen = "; ".join(parts + [f"{switches} x NVSwitch"] * bool(switches)) or "none seen on PCI"
    return f"{seen} (simulated)" if facts.nvidia.simulated else seen


def _gpu(gpu: PciFacts, *, listed: bool) -> str:
    lanes, most = gpu.link_width, gpu.link_width_max
    state = [f"driver {gpu.driver or 'none'}"]
    if lanes:
        state.append(f"x{lanes} of x{most}" if most and lanes < most else f"x{lanes}")
    if gpu.bars_unassigned:
        state.append(f"{counted(gpu.bars_unassigned, 'memory region')} without an address")
    if not listed:
        state.append("not in nvidia-smi")
    return f"{VENDORS.get(gpu.vendor, '')} {gpu.vendor}:{gpu.device} ({', '.join(state)})".strip()


def _driver(nvidia: NvidiaFacts) -> str:
    listed = "not asked" if nvidia.nvml is None else f"lists {len(nvidia.nvml)}"
    smi = "failed" if nvidia.nvml is None and nvidia.nvml_error else listed
    return f"NVIDIA {nvidia.module}, {nvidia.flavour} module, on {counted(len(nvidia.bound), 'GPU')}; nvidia-smi {smi}"


def _on_disk(facts: Facts) -> str:
    """What the next boot loads, and what Secure Boot has to say about it."""
    boot, mok = facts.boot, facts.boot.mok
    parts = [f"module for {kernel.release} {_module(kernel)}" for kernel in boot.kernels[:MOST]]
    parts += [f"libraries {boot.library or 'none'}"]
    key = {True: "enrolled", False: "not enrolled", None: "not known to be enrolled"}[mok.enrolled]
    parts += [f'key "{mok.subject}" {key}'] if mok.certificate and facts.secure_boot.enabled else []
    return "; ".join(parts)


def _module(kernel: BootKernelFacts) -> str:
    if not kernel.module:
        return "none"
    signed = f", signed by {kernel.signer}" if kernel.signer else ""
    return f"{kernel.version} {kernel.flavour or ''}".strip() + signed


def _pcie(facts: Facts) -> Iterator[str]:
    """The bridges above GPUs, where they slow them down; those of a virtual machine are made up."""
    if facts.virtualization != "none":
        return
    told: set[tuple[str, ...]] = set()
    for bridge in sorted(facts.bridges, key=lambda b: b.link_width or 0):
        below = [gpu for gpu in facts.gpus if bridge.address in gpu.bridges]
        together = tuple(gpu.address for gpu in below)
        narrow = 0 < (bridge.link_width or 0) < max((gpu.link_width_max or 0 for gpu in below), default=0)
        if narrow and len(below) > 1 and together not in told:
            told.add(together)
            yield f"{len(below)} GPUs share x{bridge.link_width} at bridge {bridge.address}"
    translated = [gpu for gpu in facts.gpus if (gpu.iommu_type or "").startswith("DMA")]
    above = {address for gpu in translated for address in gpu.bridges}
    redirecting = [bridge.address for bridge in facts.bridges if bridge.acs_redirect and bridge.address in above]
    if redirecting and len(translated) > 1:
        some = ", ".join(redirecting[:3]) + (", …" if len(redirecting) > 3 else "")
        yield f"ACS and IOMMU send traffic between {len(translated)} GPUs up to the root (bridges {some})"


def _disk(disk: FilesystemFacts) -> str:
    if not disk.size:
        return f"{disk.mount}  {disk.type}, not measured"
    flags = [flag for flag in ("ro", "noexec", "nosuid") if flag in disk.options]
    warning = ", nearly full" if nearly_full(disk) else ""
    return f"{disk.mount}  {_gb(disk.free)} of {_gb(disk.size)} free ({', '.join([disk.type, *flags])}){warning}"


def _packages(facts: Facts) -> str:
    manager = facts.package_manager
    sick = manager.locks or manager.interrupted or manager.broken or manager.source_problems
    health = "needs attention" if sick else "unknown" if manager.interrupted is None else "healthy"
    sources = counted(sum(s.enabled for s in manager.sources), "source")
    holds = f", held: {', '.join(manager.holds)}" if manager.holds else ""
    return f"{manager.kind}, {health}, {sources}{holds}"


def _upgrades(facts: Facts) -> str:
    policy = facts.unattended_upgrades
    if not policy.installed:
        return "not by themselves (unattended-upgrades is not installed)"
    word = {True: "by themselves", False: "not by themselves", None: "unknown"}[policy.enabled]
    kept = f", except {', '.join(policy.blacklist)}" if policy.blacklist else ""
    return f"{word}{kept}" if policy.enabled else word


def _clock(facts: Facts) -> str:
    kept = {True: "synchronised", False: "not synchronised", None: "synchronisation unknown"}[facts.time.synchronized]
    if facts.time.synchronized is False and facts.virtualization in CONTAINERS:
        kept += " (a container)"
    skew = facts.time.skew
    off = "" if skew is None else f", {duration(abs(skew))} off" if abs(skew) >= 1 else ", agrees with ours"
    return f"{kept}{off}, {facts.os.timezone or 'time zone unknown'}"


def _installs(facts: Facts) -> str:
    rows = [f"{i.what} {i.version}".strip() + f" ({i.origin or i.path})" for i in facts.installs]
    more = [f"and {len(rows) - INSTALLS} more"] if len(rows) > INSTALLS else []
    return ", ".join(rows[:INSTALLS] + more) or "no NVIDIA, CUDA, docker or conda"


def _attention(findings: tuple[Finding, ...]) -> RenderableType:
    if not findings:
        return Text("  ✓ nothing needs attention", style="green")
    lines = []
    for finding in findings[:MOST]:
        lines.append(Hanging(one_line(finding.message), Text("  ! ", style="yellow")))
        if finding.remedy:
            lines.append(Hanging(next_step(one_line(finding.remedy)), Text.assemble("    ", ("Next:", "bold"), " ")))
    if len(findings) > MOST:
        lines.append(Hanging(f"and {len(findings) - MOST} more: gpustrap inspect --format json", "    "))
    return Group(*lines)


def _gb(size: int) -> str:
    value = size / GB
    return f"{value:.1f} GB" if value < 10 else f"{value:.0f} GB"
