"""What the driver's stand-in packages hold: modules that the real dkms builds and modinfo reads, libraries, nvidia-smi.

What runs is the lab's: the libraries and nvidia-smi lead to a node's simulated GPUs, see `gpustrap.lab.gpus.node`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpustrap.lab.standins.deb import File
from gpustrap.lab.standins.nvidia_data import Package, upstream
from gpustrap.lab.standins.parts import FILES, fill

PROGRAMS = "/usr/lib/lab-gpu"  # on a node with simulated GPUs
LICENSES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
SCRIPTS = ("dkms-postinst", "dkms-prerm", "persistenced-postinst", "persistenced-prerm")


def script(kind: str, package: Package) -> str:
    """A maintainer script of a driver's package."""
    return _text(package, f"{kind}.sh")


def _text(package: Package, name: str, **values: str) -> str:
    template = (FILES / "driver" / name).read_text(encoding="utf-8")
    return fill(template, {"version": upstream(package.version), **values})


def _file(package: Package, *, name: str, mode: int = 0o644, **values: str) -> File:
    return File(_text(package, name, **values).encode(), mode)


def _link(target: str) -> Callable[[Package], File]:
    return lambda package: File(link=fill(target, {"version": upstream(package.version)}), mode=0o777)


KINDS: dict[str, Callable[[Package], File]] = {
    "library": _link(f"{PROGRAMS}/lib/libnvidia-ml.so.1"),
    "library_link": _link("libnvidia-ml.so.@version@"),
    "cuda": _link(f"{PROGRAMS}/lib/libcuda.so.1"),
    "cuda_link": _link("libcuda.so.@version@"),
    "smi": _link(f"{PROGRAMS}/bin/nvidia-smi"),
    "dkms_conf": partial(_file, name="dkms.conf"),
    "dkms_make": partial(_file, name="Makefile"),
    "dkms_failed": partial(_file, name="failed.log"),
    "module_open": partial(_file, name="module.c", license=LICENSES["open"]),
    "module_proprietary": partial(_file, name="module.c", license=LICENSES["proprietary"]),
    "persistenced": partial(_file, name="persistenced.sh", mode=0o755),
    "persistenced_unit": partial(_file, name="persistenced.service"),
}
