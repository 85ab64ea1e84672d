"""Builds what runs on a node: stand-ins for libnvidia-ml.so.1 and libcuda.so.1; nvidia-smi, the boot, one file each."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from importlib.util import find_spec
from pathlib import Path

from gpustrap.lab.gpus.machine import GpuError, data

HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"
SMI = "import sys\n\nfrom lab_smi.main import main\n\nsys.exit(main(sys.argv[1:]))\n"
BOOT = "import os\nfrom pathlib import Path\n\nfrom gpustrap.lab.gpus.boot import HERE, boot\n\n"
BOOT += "boot(HERE, Path('/'), os.uname().release)\n"
BOOT_MODULES = ("boot", "faults", "kernel_log", "links", "machine", "state", "sysfs")
DATA = ("boards", "drivers", "mig", "profiles")
LOG = "import sys\n\nfrom gpustrap.lab.gpus.klog import write\n\nwrite(sys.stdin)\n"
LIBRARY = "libnvidia-ml.so.1"
CUDA_LIBRARY = "libcuda.so.1"
# The device computes with one rounding each; without -ffp-contract=off gcc may fuse two operations.
FLAGS = ("-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
# What nvidia-smi itself links to, and nvidia-ml-py no longer calls.
OLD_NAMES = (
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetPciInfo_v2",
    "nvmlDeviceGetDetailedEccErrors",
    "nvmlDeviceGetAttributes",
    "nvmlDeviceGetHandleByPciBusId",
    "nvmlDeviceRemoveGpu_v2",
    "nvmlEventSetWait",
    "nvmlVgpuInstanceGetLicenseInfo",
)


def functions() -> tuple[str, ...]:
    """Every function of NVML that nvidia-ml-py knows, by reading it.

    Raises:
        GpuError: nvidia-ml-py is not installed.
    """
    there = find_spec("pynvml")
    if there is None or there.origin is None:
        raise GpuError("nvidia-ml-py is not installed")
    words = Path(there.origin).read_text(encoding="utf-8")
    return tuple(sorted({*re.findall(r'_nvmlGetFunctionPointer\(\s*"(nvml\w+)"', words), *OLD_NAMES}))


def stubs() -> str:
    """C that answers every known function with NVML_ERROR_NOT_SUPPORTED where the library has no other answer."""
    lines = [f"STUB({name})" for name in functions()]
    macro = '#define STUB(name) __attribute__((weak, visibility("default"))) int name(void) { return 3; }'
    return "\n".join((macro, *lines, ""))


def library(directory: Path, compiler: str = "gcc") -> Path:
    """Build the stand-in for NVML below a directory.

    Raises:
        GpuError: There is no compiler, or it failed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    generated = directory / "stubs.c"
    generated.write_text(stubs(), encoding="ascii")
    try:
        return _shared(directory / LIBRARY, "nvml", compiler, "-Os", str(generated))
    finally:
        generated.unlink()


def cuda_library(directory: Path, compiler: str = "gcc") -> Path:
    """Build the stand-in for CUDA's driver library below a directory.

    Raises:
        GpuError: There is no compiler, or it failed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    return _shared(directory / CUDA_LIBRARY, "cuda", compiler, "-Os", _known_cuda(), "-pthread", "-lm")


def compare_cuda(header: Path, compiler: str = "gcc") -> None:
    """Compile CUDA's stand-in with NVIDIA's cuda.h in place of its own declarations, and keep nothing.

    Raises:
        GpuError: A name, a signature or a number is not that of the header; or there is no compiler.
    """
    options = (f'-DLAB_CUDA_HEADER="{header}"', "-Wmissing-prototypes", "-fsyntax-only")
    _shared(Path(CUDA_LIBRARY), "cuda", compiler, _known_cuda(), *options)


def _known_cuda() -> str:
    """What the library knows of drivers: the CUDA of each branch."""
    rows = data("drivers")["branches"].items()
    return '-DLAB_CUDA_OF="{}"'.format(" ".join(f"{branch}={row['cuda']}" for branch, row in rows))


def _shared(target: Path, sources: str, compiler: str, *options: str) -> Path:
    if shutil.which(compiler) is None:
        raise GpuError(f"{compiler} is not on this machine")
    own = [str(HERE / "simulated.c"), *map(str, sorted(HERE.glob(f"{sources}*.c")))]
    words = [compiler, *FLAGS, f"-Wl,-soname,{target.name}", "-o", str(target), *own, *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GpuError(f"{compiler} cannot build {target.name}: {done.stderr[-1500:]}")
    return target


def smi(target: Path, python: str = PYTHON) -> Path:
    """Write ``nvidia-smi``: one executable file with our program in it, which any Python runs."""
    content = {
        f"lab_smi/{path.name}": path.read_bytes()
        for path in sorted((HERE / "smi").iterdir())
        if path.suffix in (".py", ".txt")
    }
    return _program(target, python, SMI, content)


def boot(target: Path, python: str = PYTHON) -> Path:
    """Write the program that a node's boot runs: `gpustrap.lab.gpus.boot` with its data as Python literals."""
    content = _modules(*BOOT_MODULES)
    content |= {f"gpustrap/lab/gpus/{name}.txt": repr(data(name)).encode() for name in DATA}
    return _program(target, python, BOOT, content)


def log(target: Path, python: str = PYTHON) -> Path:
    """Write the program that puts lines into the log of a node's kernel: `gpustrap.lab.gpus.klog`."""
    return _program(target, python, LOG, _modules("klog"))


def _modules(*names: str) -> dict[str, bytes]:
    content = {f"{place}/__init__.py": b"" for place in ("gpustrap", "gpustrap/lab", "gpustrap/lab/gpus")}
    return content | {f"gpustrap/lab/gpus/{name}.py": (HERE / f"{name}.py").read_bytes() for name in names}


def _program(target: Path, python: str, start: str, content: dict[str, bytes]) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.write(f"#!{python}\n".encode())
        with zipfile.ZipFile(file, "w") as archive:
            for name, words in {**content, "__main__.py": start.encode()}.items():
                archive.writestr(zipfile.ZipInfo(name), words)
    target.chmod(0o755)
    return target
