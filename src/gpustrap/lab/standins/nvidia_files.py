"""What the files of NVIDIA's stand-in packages hold: the little that apt and our roles look at."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from gpustrap.lab.standins import nvidia_driver_files as driver
from gpustrap.lab.standins import nvidia_programs as programs
from gpustrap.lab.standins.deb import File
from gpustrap.lab.standins.nvidia_data import Package
from gpustrap.lab.standins.parts import fill

# Which packages a pinning package binds, as globs; the versions of others do not match.
PINNED = "*nvidia* cuda-drivers* libcuda1 libcudadebugger1 libnvsdm* libxnvctrl* nvlink5*"
NVCC = """#!/bin/sh
# Stand-in of the gpustrap lab, simulated: knows its version, compiles nothing.
case "${1:-}" in
--version | -V) ;;
*) echo "nvcc (simulated): this stand-in compiles nothing" >&2 && exit 1 ;;
esac
printf '%s\\n' 'nvcc: NVIDIA (R) Cuda compiler driver' 'simulated: stand-in of the gpustrap lab' \\
  'Cuda compilation tools, release @minor@, V@component@'
"""
ALTERNATIVES = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
update-alternatives --install /usr/local/cuda cuda /usr/local/cuda-@minor@ @priority@
update-alternatives --install /usr/local/cuda-@major@ cuda-@major@ /usr/local/cuda-@minor@ @priority@
"""
NO_ALTERNATIVES = """#!/bin/sh
set -e
[ "$1" = upgrade ] && exit 0
update-alternatives --remove cuda /usr/local/cuda-@minor@
update-alternatives --remove cuda-@major@ /usr/local/cuda-@minor@
"""
SCRIPTS = {"alternatives": ALTERNATIVES, "no_alternatives": NO_ALTERNATIVES}


@dataclass(frozen=True, slots=True)
class Site:
    """What files say of where the repository is.

    Attributes:
        uri: Of the repository; a package that names it is right only there.
        keyring: The binary keyring it is signed with.
    """

    uri: str
    keyring: bytes


def files(package: Package, site: Site) -> dict[str, File]:
    """All files of a package, by path."""
    made = {path: _made(kind, package, site) for path, kind in package.files.items()}
    return {f"usr/share/doc/{package.name}/README.simulated": _note(package, site), **made}


def _made(kind: str, package: Package, site: Site) -> File:
    others = {**driver.KINDS, **programs.KINDS}
    return others[kind](package) if kind in others else KINDS[kind](package, site)


def scripts(package: Package) -> dict[str, str]:
    """All maintainer scripts of a package, by name."""
    return {name: _script(kind, package) for name, kind in package.scripts.items()}


def _script(kind: str, package: Package) -> str:
    if kind in programs.SCRIPTS:
        return programs.script(kind, package)
    return driver.script(kind, package) if kind in driver.SCRIPTS else _filled(SCRIPTS[kind], package)


def _filled(text: str, package: Package) -> str:
    """A text about a toolkit."""
    major, minor = package.values["major"], package.values["minor"]
    values = {
        "major": major,
        "minor": f"{major}.{minor}",
        "priority": f"{major}{minor}",
        "component": package.values["component"],
    }
    return fill(text, values)


def _note(package: Package, _site: Site) -> File:
    return File(f"{package.name} {package.version}, simulated: stand-in of the gpustrap lab.\n".encode())


def _preferences(version: str) -> File:
    return File(f"Package: {PINNED}\nPin: version {version}\nPin-Priority: 1000\n".encode())


def _nvcc(package: Package, _site: Site) -> File:
    return File(_filled(NVCC, package).encode(), 0o755)


def _cuda_version(package: Package, _site: Site) -> File:
    about = {"cuda": {"name": "CUDA SDK", "version": package.values["release"]}, "simulated": True}
    return File((json.dumps(about, indent=3) + "\n").encode())


def _source_list(_package: Package, site: Site) -> File:
    return File(f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {site.uri}/ /\n".encode())


def _repository_pin(_package: Package, _site: Site) -> File:
    return File(b"Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n")


KINDS: dict[str, Callable[[Package, Site], File]] = {
    "pin_branch": lambda package, _site: _preferences(f"{package.values['branch']}.*"),
    "pin_version": lambda package, _site: _preferences(f"{package.values['upstream']}-*"),
    "note": _note,
    "nvcc": _nvcc,
    "cuda_version": _cuda_version,
    "keyring": lambda _package, site: File(site.keyring),
    "source_list": _source_list,
    "repository_pin": _repository_pin,
}
