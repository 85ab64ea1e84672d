"""What can be wrong with a simulated machine and its GPUs: the kinds of faults, what each takes, which board has it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        shows: What it looks like, for a person.
        value: The value that it has unless told otherwise; empty where the board decides, or where there is none.
        form: A pattern that a given value matches; empty where it takes none.
        takes: The value in words.
        needs: What a board needs to have it: a column of boards.yml, ``gsp``, ``bridge`` or ``peers``.
    """

    shows: str
    value: str = ""
    form: str = ""
    takes: str = ""
    needs: str = ""

    def trouble(self, value: str) -> str:
        """Why a value is none for this kind; empty where it is one."""
        if not value or re.fullmatch(self.form, value):
            return ""
        return f"takes {self.takes}, not {value}" if self.form else f"takes no value, and {value} was given"


COUNT = ("[1-9][0-9]{0,5}", "a count")
CODE = ("[1-9][0-9]{0,2}", "a result code of CUDA, such as 100, 802 or 999")
MACHINE = {
    "version-mismatch": Kind(
        "the loaded module has another version than the library", "535.161.07", r"[0-9.]+", "a version"
    ),
    "nvml-error": Kind("NVML does not start", "999", "[1-9][0-9]{0,2}", "a return code of NVML"),
    "cuda-error": Kind("CUDA does not start", "999", *CODE),
    "nouveau": Kind("the kernel's own driver has the GPUs, from the next boot on, unless it is blacklisted"),
}
GPU = {
    "lost": Kind("GPU is lost, Xid 79; nvidia-smi ends with 15"),
    "missing": Kind("not on the PCI bus, not counted"),
    "hung": Kind("calls do not come back until the fault goes"),
    "stuck": Kind("as hung, and a program that calls can only be killed"),
    "gsp-timeout": Kind(
        "Xid 119: every call takes seconds and fails, until a reset", "6", *("[1-9][0-9]?", "seconds"), "gsp"
    ),
    "xid": Kind("a line in the kernel's log, what recovers the GPU", "79", "[1-9][0-9]{0,2}", "a code"),
    "ecc-corrected": Kind("ECC counters", "12", *COUNT, "ecc"),
    "ecc-uncorrected": Kind("ECC counters", "1", *COUNT, "ecc"),
    "ecc-pending": Kind("ECC is off after the next reset", needs="ecc"),
    "remap-pending": Kind("a row of memory is to be remapped at the next reset", needs="remaps_rows"),
    "remap-failed": Kind("no row is left to remap to", needs="remaps_rows"),
    "retired-pending": Kind("a page of memory is to be retired at the next reboot", needs="retires_pages"),
    "hot": Kind("over the slowdown temperature, clocks lowered", "", "[1-9][0-9]{0,2}", "degrees"),
    "throttled": Kind("clocks lowered by the power brake"),
    "narrow": Kind("fewer PCIe lanes", "8", "1|2|4|8|16", "1, 2, 4, 8 or 16 lanes"),
    "slow-link": Kind("a slower PCIe link", "1", "[1-5]", "a generation of PCIe, 1 to 5"),
    "acs": Kind(
        "the bridges above it send traffic between GPUs up to the root, and an IOMMU translates it", needs="bridge"
    ),
    "bars-unassigned": Kind("memory regions without an address"),
    "mig": Kind("MIG is on, without instances", needs="mig"),
    "nvlink-down": Kind("links that are inactive", "0", "[0-9]+(,[0-9]+)*", "numbers of links, such as 0,4", "nvlink"),
    "fabric-pending": Kind("not in the fabric: as long as the fabric manager has not run", needs="nvlink"),
    "wrong-bit": Kind(
        "one bit of the result of a matrix product is wrong",
        "0,0,0,20",
        "[0-9]{1,9}(,[0-9]{1,6}){2},([0-9]|[12][0-9]|3[01])",
        "PRODUCT,ROW,COLUMN,BIT: of the product with that number, the first is 1; of every one where it is 0",
    ),
    "stuck-bit": Kind(
        "a bit of the memory is always 1",
        "1024,5",
        "[0-9]{1,6},([0-9]|[12][0-9]|3[01])",
        "MIB,BIT: where in the memory",
    ),
    "kernel-hung": Kind("kernels do not end until the fault goes; NVML answers"),
    "kernel-error": Kind("kernels fail: shown by the next call that waits, then by every call", "719", *CODE),
    "load-error": Kind("kernels cannot be loaded", "209", *CODE),
    "slow": Kind("it computes slower, no counter says why", "60", "[1-9][0-9]?", "percent of what the board does"),
    "p2p-corrupt": Kind("copies from and to other GPUs come out wrong", needs="peers"),
    "err": Kind("values that are Unknown Error, ERR! in the table", "fan,power_draw", "[a-z_]+(,[a-z_]+)*", "keys"),
}
