"""Whether the planned driver's modules can be built for the node's kernels, and loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpustrap.catalog.schema_gpu import DriverBranch
from gpustrap.resolve.gpu.candidates import all_candidates
from gpustrap.resolve.gpu.kernel import kernel_flavour
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.preflight.view import Seen, View, some, warning


def look_at_kernel(view: View) -> Iterator[Seen]:
    """Modules that a distribution builds for its own kernels need no look at those."""
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


def _release(kernel: str) -> tuple[int, ...]:
    """Every number in it: 6.8.0-117-generic is later than 6.8.0-40-generic."""
    return tuple(int(number) for number in re.findall(r"\d{1,9}", kernel))


def _runs_on(branch: DriverBranch, kernel: str) -> bool:
    return not branch.kernel_before or _release(kernel)[:2] < _release(branch.kernel_before)


def _too_new(view: View, driver: Driver) -> Iterator[Seen]:
    branch, kernel = driver.branch, view.facts.kernel
    if not _runs_on(branch, kernel.running) and view.builds:
        yield _refused(view, branch)
        return
    late = [k for k in kernel.installed if not _runs_on(branch, k) and k != kernel.running]
    if late:
        remove = view.words("sudo apt-get remove linux-image-", "sudo dnf remove kernel-core-")
        yield warning(
            "kernel-too-new",
            "kernel",
            f"{some(late)} may be booted next, and branch {branch.branch} is not known to build for it",
            evidence=_rule(branch),
            advice=f"if it is not needed: {remove}{late[0]}",
        )


def _rule(branch: DriverBranch) -> str:
    return f"catalog: drivers, {branch.branch}: kernels before {branch.kernel_before} ({branch.kernel_source})"


def _refused(view: View, branch: DriverBranch) -> Seen:
    kernel = view.facts.kernel
    first = branch.kernel_before
    message = f"kernel {kernel.running} runs, and branch {branch.branch} is not known to build for {first} or later"
    fitting = [k for k in kernel.installed if _runs_on(branch, k)]
    older = max(fitting, key=_release, default="")
    ways = [f"boot {older}, which is installed" if older else f"boot a kernel before {branch.kernel_before}"]
    ways += _other_drivers(view, branch)
    remedy = "; or ".join(ways)
    return view.inputs.problem("kernel-too-new", message, remedy, evidence=_rule(branch))


def _other_drivers(view: View, branch: DriverBranch) -> list[str]:
    """What GPUs and machine allow besides: prebuilt modules, or the newest branch that knows the kernel."""
    running = view.facts.kernel.running
    others = [c for c in all_candidates(view.inputs, view.driven) if c.by in {"", "request"}]
    found = []
    if any(c.packages.module == "prebuilt" for c in others):
        found.append("set gpustrap_driver_origin: distribution, whose modules are built for its kernels")
    later = [int(c.branch.branch) for c in others if c.branch.branch != branch.branch and _runs_on(c.branch, running)]
    if later:
        found.append(f'set gpustrap_driver_branch: "{max(later)}"')
    return found


def _without_headers(view: View) -> Iterator[Seen]:
    """Headers of exactly the running kernel; an archive drops those of kernels that it no longer has."""
    kernel, manager = view.facts.kernel, view.facts.package_manager
    package = f"linux-headers-{kernel.running}"
    there = kernel.running in kernel.headers or package in manager.packages or package in manager.candidates
    if view.builds is None or there or not manager.candidates or manager.kind != "apt":
        return
    newer = [k for k in kernel.headers if k in kernel.installed and _release(k) > _release(kernel.running)]
    flavour = kernel_flavour(kernel.running, view.inputs.distro)
    if newer:
        first = "sudo systemctl reboot, into " + max(newer, key=_release)
    elif flavour:
        packages = f"linux-image-{flavour} linux-headers-{flavour}"
        first = f"sudo apt-get update && sudo apt-get install {packages} && sudo systemctl reboot"
    else:
        first = "boot a kernel of the distribution"
    message = f"the headers of the running kernel {kernel.running} cannot be had, so that DKMS cannot build for it"
    remedy = f"on {view.name}: {first}; then gpustrap plan {view.name}"
    evidence = f"apt on the node does not know {package}\nkernels with headers: {some(kernel.headers) or 'none'}"
    yield view.inputs.problem("headers-missing", message, remedy, evidence=evidence)
