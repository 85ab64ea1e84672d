"""Whether the firmware lets the planned modules load."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.gpu.candidates import all_candidates
from gpustrap.resolve.gpu.elsewhere import other_distros
from gpustrap.resolve.gpu.kernel import is_foreign
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.preflight.advice import to_prebuilt
from gpustrap.resolve.preflight.view import Seen, View, note, warning

MOK = "set gpustrap_driver_mok: true, and have a person enrol the node's key once at its console"


def look_at_secure_boot(view: View) -> Iterator[Seen]:
    """Modules built on the node are signed by nobody whom the firmware knows."""
    state, driver = view.facts.secure_boot, view.driver
    evidence = f"Secure Boot: {state.source or 'nothing on the node says'}"
    if driver and driver.packages.module == "prebuilt" and state.enabled:
        yield note(
            "secure-boot-signed",
            "Secure Boot",
            "it is on, and the planned modules are prebuilt and signed by the distribution: nothing is to be done",
            evidence=f"{evidence}\n{driver.packages.row}",
            advice="keep to the distribution's kernels",
        )
    builds = view.builds
    if builds is None or state.enabled is False or _key_enrolled(view):
        return
    if state.enabled is None:
        if not view.inputs.request.driver_mok:
            yield warning(
                "secure-boot-unknown",
                "Secure Boot",
                "whether it is on cannot be read: if it is, the modules built on the node will not load",
                evidence=evidence,
                advice=f"look: mokutil --sb-state; if it is on, {MOK}",
            )
    elif view.inputs.request.driver_mok:
        yield warning(
            "secure-boot-mok",
            "Secure Boot",
            "it is on: the driver loads only once a person has enrolled the node's key at its console",
            evidence=evidence,
            advice="plan for a reboot with somebody at the console (screen or BMC): MOK Manager never asks over SSH",
        )
    else:
        yield _refused(view, builds, evidence)


def _key_enrolled(view: View) -> bool:
    """A module that DKMS built and that is loaded all the same: the next one is signed with the same key."""
    built = {i.version for i in view.facts.installs if i.what == "nvidia-driver" and i.origin == "dkms"}
    return bool(view.facts.nvidia.module) and view.facts.nvidia.module in built


def _refused(view: View, driver: Driver, evidence: str) -> Seen:
    """The ways out; signed modules are the first, here or on another distribution, where there are some."""
    ways = [*_signed_modules(view), MOK, "switch Secure Boot off in the firmware"]
    message = "Secure Boot is on, and modules that DKMS builds on the node would be refused by the kernel"
    remedy = f"one of: {'; '.join(ways)}"
    return view.inputs.problem("secure-boot-dkms", message, remedy, evidence=f"{evidence}\n{driver.packages.row}")


def _signed_modules(view: View) -> list[str]:
    """By another kernel, by another request, or by another distribution; none where nobody signs any for these GPUs."""
    inputs = view.inputs
    prebuilt = [c for c in all_candidates(inputs, view.driven) if c.packages.module == "prebuilt"]
    foreign = is_foreign(view.facts.kernel.running, inputs.distro)
    if foreign and any(c.by not in {"gpus", "fabric"} for c in prebuilt):
        return [f"boot a kernel of {inputs.distro.name}, which has signed modules for its own kernels"]
    here = to_prebuilt(view)
    if here:
        return [f"{here}, which has signed modules"]
    elsewhere = " or ".join(other_distros(inputs, view.driven, "prebuilt"))
    return [f"install a distribution that signs modules itself: {elsewhere}"] if elsewhere else []
