"""Whether the planned driver's modules can be built for the node's kernels, and loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpustrap.resolve.gpu.candidates import Candidate, all_candidates, kernel_packages
from gpustrap.resolve.gpu.driver_refusal import preference
from gpustrap.resolve.gpu.kernel import is_foreign, kernel_flavour, release, served_kernel
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.preflight.advice import to_prebuilt, tried, ways_to, words
from gpustrap.resolve.preflight.view import Seen, View, note, some, warning

# How uname -r ends on Proxmox VE.
PROXMOX = "-pve"


def look_at_kernel(view: View) -> Iterator[Seen]:
    """Modules that a distribution builds for its own kernels need a look at which of those only."""
    driver = view.driver
    if driver is None:
        return
    if view.facts.kernel.modules_loadable is False and not view.facts.nvidia.module:
        yield warning(
            "modules-not-loadable",
            "kernel",
            "it loads no modules, and so no driver",
            evidence=f"{view.facts.kernel.running}: no /proc/modules, or kernel.modules_disabled is 1",
            advice="boot a kernel of the distribution, without kernel.modules_disabled",
        )
    if driver.packages.module == "dkms":
        yield from _too_new(view, driver)
        yield from _without_headers(view)
    else:
        yield from _not_served(view, driver)


@dataclass(frozen=True, slots=True)
class _Ceiling:
    """The first kernel that modules are not known to build for.

    Attributes:
        whose: ``branch 580``.
        before: The kernel.
        rule: Where that is known from.
    """

    whose: str
    before: str
    rule: str

    def stops(self, kernel: str) -> bool:
        """Whether a kernel is this one or a later one."""
        first = release(self.before)
        return release(kernel)[: len(first)] >= first


def _ceilings(driver: Driver | Candidate) -> Iterator[_Ceiling]:
    """That of the packages, which know the distribution's own kernels, and that of NVIDIA's modules."""
    branch, row = driver.branch, driver.packages
    if row.kernel_before:
        whose = f"{row.leading.format(branch=branch.branch)} of branch {branch.branch}"
        yield _Ceiling(whose, row.kernel_before, f"{row.row}: kernels before {row.kernel_before} ({row.kernel_source})")
    if branch.kernel_before:
        rule = f"catalog: drivers, {branch.branch}: kernels before {branch.kernel_before} ({branch.kernel_source})"
        yield _Ceiling(f"branch {branch.branch}", branch.kernel_before, rule)


def _stopped(driver: Driver | Candidate, kernel: str) -> _Ceiling | None:
    return next((ceiling for ceiling in _ceilings(driver) if ceiling.stops(kernel)), None)


def _too_new(view: View, driver: Driver) -> Iterator[Seen]:
    kernel = view.facts.kernel
    ceiling = _stopped(driver, kernel.running)
    if ceiling and view.builds:
        yield _refused(view, driver, ceiling)
        return
    late = [(k, _stopped(driver, k)) for k in kernel.installed if k != kernel.running]
    stopped = [(k, ceiling) for k, ceiling in late if ceiling]
    if stopped:
        first, ceiling = stopped[0]
        remove = view.words("sudo apt-get remove linux-image-", "sudo dnf remove kernel-core-")
        yield warning(
            "kernel-too-new",
            "kernel",
            f"{some([k for k, _ in stopped])} may be booted next, and {ceiling.whose} is not known to build for it",
            evidence=ceiling.rule,
            advice=f"if it is not needed: {remove}{first}",
        )


def _refused(view: View, driver: Driver, ceiling: _Ceiling) -> Seen:
    kernel = view.facts.kernel
    message = f"kernel {kernel.running} runs, and {ceiling.whose} is not known to build for {ceiling.before} or later"
    fitting = [k for k in kernel.installed if not _stopped(driver, k)]
    older = max(fitting, key=release, default="")
    ways = [f"boot {older}, which is installed" if older else f"boot a kernel before {ceiling.before}"]
    ways += _other_drivers(view, driver)
    remedy = "; or ".join(ways)
    return view.inputs.problem("kernel-too-new", message, remedy, evidence=ceiling.rule)


def _other_drivers(view: View, driver: Driver) -> list[str]:
    """What GPUs and machine allow besides: prebuilt modules, or another branch that knows the kernel."""
    running = view.facts.kernel.running
    prebuilt = to_prebuilt(view)
    found = [f"{prebuilt}, whose modules are built for its kernels"] if prebuilt else []
    others = [c for c in all_candidates(view.inputs, view.driven) if c.would_do and c.branch != driver.branch]
    later = [c for c in others if not _stopped(c, running)]
    for candidate in sorted(later, key=preference, reverse=True):
        for way in ways_to(candidate, "driver_branch"):
            other = tried(view, way)
            if other and not _stopped(other, running):
                return [*found, words(way)]
    return found


def _without_headers(view: View) -> Iterator[Seen]:
    """Headers of exactly the running kernel; an archive drops those of kernels that it no longer has."""
    kernel, manager, distro = view.facts.kernel, view.facts.package_manager, view.inputs.distro
    package = f"linux-headers-{kernel.running}"
    there = kernel.running in kernel.headers or package in manager.packages or package in manager.candidates
    if view.builds is None:
        return
    if there or not manager.candidates or manager.kind != "apt":
        if is_foreign(kernel.running, distro):
            yield _foreign(view)
        return
    newer = [k for k in kernel.headers if k in kernel.installed and release(k) > release(kernel.running)]
    flavour = kernel_flavour(kernel.running, distro)
    if newer:
        first = f"sudo systemctl reboot, into {max(newer, key=release)} (gpustrap_reboot: true lets apply do that)"
    elif flavour:
        first = _newest(f"linux-image-{flavour} linux-headers-{flavour}")
    elif kernel.running.endswith(PROXMOX):
        theirs = f"proxmox-headers-{kernel.running} (pve-headers-{kernel.running} before Proxmox VE 8)"
        first = f"sudo apt-get install {theirs}, or {_own_kernel(view)}"
    else:
        first = f"install its headers from where that kernel is from, or {_own_kernel(view)}"
    message = f"the headers of the running kernel {kernel.running} cannot be had, so that DKMS cannot build for it"
    if newer and view.inputs.request.reboot:
        follows = f"apply reboots into {max(newer, key=release)} first, which has them"
        headers = f"kernels with headers: {some(kernel.headers)}"
        yield note(
            "kernel-first", "kernel", f"{message}: {follows}", evidence=headers, advice=f"gpustrap apply {view.name}"
        )
        return
    remedy = f"on {view.name}: {first}; then gpustrap plan {view.name}"
    evidence = f"apt on the node does not know {package}\nkernels with headers: {some(kernel.headers) or 'none'}"
    yield view.inputs.problem("headers-missing", message, remedy, evidence=evidence)


def _newest(packages: str) -> str:
    return f"sudo apt-get update && sudo apt-get install {packages} && sudo systemctl reboot"


def _own_kernel(view: View) -> str:
    """The way out of a kernel that is none of the distribution's."""
    distro = view.inputs.distro
    own = [k for k in view.facts.kernel.installed if kernel_flavour(k, distro)]
    return f"boot {max(own, key=release)}, which is installed" if own else f"boot a kernel of {distro.name}"


def _foreign(view: View) -> Seen:
    """There is no metapackage that brings headers with each new version of it."""
    running, distro = view.facts.kernel.running, view.inputs.distro
    brought = "install its headers with each new version of it"
    if running.endswith(PROXMOX):
        brought = "sudo apt-get install proxmox-default-headers (pve-headers before Proxmox VE 8), which follows it"
    return warning(
        "kernel-foreign",
        "kernel",
        f"{running} is none of {distro.name}'s: its next version has no driver until its headers are there, too",
        evidence=f"uname -r: {running}\nflavours of {distro.name}: {some(distro.kernel_flavours)}",
        advice=f"{brought}; or {_own_kernel(view)}",
    )


def _not_served(view: View, driver: Driver) -> Iterator[Seen]:
    """An archive has prebuilt modules at the driver's version for the newest kernel of a flavour only."""
    kernel, manager, distro = view.facts.kernel, view.facts.package_manager, view.inputs.distro
    if driver.kept and view.facts.nvidia.module:
        return
    flavour = kernel_flavour(kernel.running, distro)
    for name in kernel_packages(view.inputs, driver.packages, driver.branch):
        version = (manager.packages.get(name) if driver.kept else None) or manager.candidates.get(name, "")
        exact = name.removesuffix(flavour) + kernel.running
        known = exact in manager.packages or exact in manager.candidates
        served = served_kernel(version, flavour, distro)
        if not version or (served == kernel.running if served else known):
            continue
        update = f"on {view.name}: {_newest(f'linux-image-{flavour}')}; then gpustrap plan {view.name}"
        yield warning(
            "kernel-not-served",
            "kernel",
            f"{kernel.running} runs, and the prebuilt modules are for {served or f'the newest {flavour} kernel'}: "
            "the GPUs work only after a reboot into that one",
            evidence=f"{name} {version}" + ("" if known else f"\napt on the node does not know {exact}"),
            advice=f"sudo systemctl reboot, into {served}" if served in kernel.installed else update,
        )
