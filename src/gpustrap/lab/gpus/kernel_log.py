"""What the kernel of a simulated machine logs about its GPUs: the modules at the boot, then every fault."""

from __future__ import annotations

from gpustrap.lab.gpus.machine import Gpu, Machine

TEXTS = {
    "48": "DBE (double bit error) ECC Error",
    "63": "Row remapping event: a row was recorded for remapping",
    "74": "NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    "79": "GPU has fallen off the bus.",
    "94": "Contained: SM (0x1). RST: No, D-RST: No",
    "95": "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    "119": "Timeout after 6s of waiting for RPC response from GPU{at} GSP! Expected function 76 (GSP_RM_CONTROL) "
    "(0x20803032 0x58c).",
    "154": "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}
MISMATCH = (
    "NVRM: API mismatch: the client has the version {}, but NVRM: this kernel module has the version {}. Please make "
    "sure that this kernel module and all NVIDIA driver components have the same version."
)


def kernel_log(there: Machine) -> tuple[str, ...]:
    """The lines, the oldest first."""
    lines = list(_boot(there))
    for at, gpu in there.present():
        for code in _xids(there, at):
            words = TEXTS.get(code, "unknown").format(at=at)
            lines += _named(gpu, lines)
            lines.append(f"NVRM: Xid (PCI:{gpu.address[:-2]}): {code}, pid='<unknown>', name=<unknown>, {words}")
    mismatch = there.fault("version-mismatch")
    if there.driver and mismatch:
        lines.append(MISMATCH.format(there.driver.library, mismatch))
    return tuple(lines)


def _boot(there: Machine) -> tuple[str, ...]:
    driver = there.driver
    if there.nouveau:
        return tuple(f"nouveau {gpu.address}: vgaarb: deactivate vga console" for _, gpu in there.present())
    if driver is None or not driver.module:
        return ()
    opened = driver.flavour == "open"
    kind = "NVIDIA UNIX Open Kernel Module for x86_64" if opened else "NVIDIA UNIX x86_64 Kernel Module"
    refused = tuple(
        f"NVRM: The NVIDIA GPU {gpu.address} (PCI ID: 10de:{gpu.board.data['device']}) installed in this system is not "
        f"supported by the NVIDIA {driver.module} driver release."
        for at, gpu in there.present()
        if at not in {number for number, _ in there.bound()}
    )
    return (
        "nvidia: loading out-of-tree module taints kernel.",
        f"NVRM: loading {kind}  {driver.module}  Release Build  (gpustrap-lab@simulated)",
        *refused,
    )


def _xids(there: Machine, at: int) -> list[str]:
    found = [code for code in (there.fault("xid", at),) if code]
    if there.fault("lost", at) is not None:
        found.append("79")
    if there.fault("gsp-timeout", at) is not None:
        found += ["119", "154"]
    return found


def _named(gpu: Gpu, lines: list[str]) -> list[str]:
    """The first Xid of a GPU is told with who it is."""
    line = f"NVRM: GPU at PCI:{gpu.address[:-2]}: {gpu.uuid}"
    return [] if line in lines else [line]
