"""Make the PTX files of gpustrap.cu.

Needs NVRTC 12.9, the last for compute_50: ``pip install nvidia-cuda-nvrtc-cu12==12.9.*``. What NVRTC writes needs the
driver of its own CUDA version; the code needs a much older one, so the version is lowered. A test assembles the files
for every architecture of their range: ptxas refuses what a version does not have.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).parent
SOURCE = HERE / "gpustrap.cu"
# Compute capability of a file -> version of PTX: 6.5 is CUDA 10.2's, 6.0 that of CUDA 9.0
VERSIONS: Mapping[str, str] = MappingProxyType({"75": "6.5", "50": "6.0"})
HEADER = "// Made from gpustrap.cu by generate.py; change that and run this again.\n"
_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)


def compile_source(source: str, compute: str) -> str:
    """PTX for a compute capability, such as ``75``.

    Raises:
        RuntimeError: With NVRTC's words, where it does not compile.
    """
    nvrtc = ctypes.CDLL(str(_library()))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture=compute_{compute}".encode(), b"--std=c++14")
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), SOURCE.name.encode(), 0, None, None)
    if nvrtc.nvrtcCompileProgram(program, len(options), options):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    return text.value.decode()


def _library() -> Path:
    package = find_spec("nvidia.cuda_nvrtc")
    if not package or not package.submodule_search_locations:
        raise RuntimeError("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12==12.9.*")
    return Path(package.submodule_search_locations[0]) / "lib" / "libnvrtc.so.12"


def lower(text: str, version: str) -> str:
    """The same with another version and without the compiler's comments."""
    return (
        HEADER + re.sub(r"^\.version .*$", f".version {version}", _COMMENT.sub("", text), flags=re.MULTILINE).lstrip()
    )


def main() -> None:
    """Write the files."""
    for compute, version in VERSIONS.items():
        text = compile_source(SOURCE.read_text(encoding="utf-8"), compute)
        (HERE / f"gpustrap.sm_{compute}.ptx").write_text(lower(text, version), encoding="utf-8")


if __name__ == "__main__":
    main()
