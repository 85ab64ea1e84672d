"""Whether the firmware lets the planned modules load."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.gpu.candidates import all_candidates
from gpustrap.resolve.gpu.kernel import is_foreign
from gpustrap.resolve.gpu.stack import Driver
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
    """The three ways out; the first is another kernel or distribution where this one has no signed modules."""
    prebuilt = [c for c in all_candidates(view.inputs, view.driven) if c.packages.module == "prebuilt"]
    signed = [int(c.branch.branch) for c in prebuilt if c.by in {"", "request"}]
    distro = view.inputs.distro
    first = "install a distribution that signs modules itself, as Ubuntu does"
    if is_foreign(view.facts.kernel.running, distro) and any(c.by not in {"gpus", "fabric"} for c in prebuilt):
        first = f"boot a kernel of {distro.name}, which has signed modules for its own kernels"
    elif signed:
        first = f'set gpustrap_driver_origin: distribution (branch "{max(signed)}" has signed modules)'
    message = "Secure Boot is on, and modules that DKMS builds on the node would be refused by the kernel"
    remedy = f"one of: {first}; {MOK}; switch Secure Boot off in the firmware"
    return view.inputs.problem("secure-boot-dkms", message, remedy, evidence=f"{evidence}\n{driver.packages.row}")
