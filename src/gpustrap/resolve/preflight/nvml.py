"""GPUs that PCI shows and the running driver does not."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.preflight.view import Seen, View, called, labels, warning

NO_ANSWER = "gave no answer"  # the probe's word for a hung nvidia-smi
LOOK = "look for Xid, NVRM and RmInitAdapter lines: sudo journalctl -k -b | grep -iE 'NVRM|Xid'"


def look_at_nvml(view: View) -> Iterator[Seen]:
    """Only where the module is loaded: without it, nothing can be listed."""
    nvidia = view.facts.nvidia
    if not nvidia.module:
        return
    if nvidia.nvml is None:
        if nvidia.nvml_error:
            yield _failed(nvidia.nvml_error)
        return
    # What another driver holds is told apart from this.
    missing = tuple(g for g in view.driven if g.pci.address not in nvidia.nvml and g.pci.driver in {None, "nvidia"})
    if not missing:
        return
    said = f"\nnvidia-smi: {nvidia.nvml_error}" if nvidia.nvml_error else ""
    yield warning(
        "gpu-not-in-nvml",
        called(missing),
        "PCI shows what the loaded driver does not list: the card is broken, or this driver does not drive it",
        evidence=f"{labels(missing)}\nlisted by driver {nvidia.module}: {', '.join(nvidia.nvml) or 'none'}{said}",
        advice=f"{LOOK}; check power cables, seat and riser, and Above 4G Decoding in the firmware",
    )


def _failed(words: str) -> Seen:
    if NO_ANSWER in words:
        message = "nvidia-smi hangs: a GPU or its firmware (GSP) no longer answers"
        advice = f"{LOOK}; power the node off and on: installing the driver again does not mend it"
    else:
        message = "nvidia-smi fails although the driver is loaded"
        advice = LOOK
    return warning("nvml-failed", "driver", message, evidence=words, advice=advice)
