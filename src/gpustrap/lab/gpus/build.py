"""Builds what runs on the node: the stand-in for libnvidia-ml.so.1, and nvidia-smi as one file."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from importlib.util import find_spec
from pathlib import Path

from gpustrap.lab.gpus.machine import GpuError

HERE = Path(__file__).parent
START = "import sys\n\nfrom lab_smi.main import main\n\nsys.exit(main(sys.argv[1:]))\n"
LIBRARY = "libnvidia-ml.so.1"
SOURCES = ("nvml.c", "nvml_health.c")
FLAGS = ("-std=gnu11", "-Os", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
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
    """Build the library below a directory.

    Raises:
        GpuError: There is no compiler, or it failed.
    """
    if shutil.which(compiler) is None:
        raise GpuError(f"{compiler} is not on this machine")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "stubs.c").write_text(stubs(), encoding="ascii")
    target = directory / LIBRARY
    words = [compiler, *FLAGS, f"-Wl,-soname,{LIBRARY}", "-o", str(target), str(directory / "stubs.c")]
    done = subprocess.run(
        [*words, *(str(HERE / name) for name in SOURCES)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise GpuError(f"{compiler} cannot build {LIBRARY}: {done.stderr[-1500:]}")
    return target


def smi(target: Path, python: str = "/usr/bin/python3") -> Path:
    """Write ``nvidia-smi``: one executable file with our program in it, which any Python runs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.write(f"#!{python}\n".encode())
        with zipfile.ZipFile(file, "w") as archive:
            for path in sorted((HERE / "smi").iterdir()):
                if path.suffix in (".py", ".txt"):
                    archive.writestr(zipfile.ZipInfo(f"lab_smi/{path.name}"), path.read_bytes())
            archive.writestr(zipfile.ZipInfo("__main__.py"), START)
    target.chmod(0o755)
    return target
