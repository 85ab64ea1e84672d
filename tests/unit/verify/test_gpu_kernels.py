"""The kernels' PTX: made from the source, and assembled by NVIDIA's own ptxas for every GPU that a file is for."""

from __future__ import annotations

import ast
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpustrap.verify import kernels
from gpustrap.verify.gpustrap_verify.compute.kernels import pattern
from gpustrap.verify.kernels import generate

OLD = ("50", "52", "53", "60", "61", "62", "70", "72")  # the last that know them are of CUDA 12
NEW = ("75", "80", "86", "87", "88", "89", "90", "100", "103", "110", "120", "121")
ENTRY = re.compile(r"\.visible \.entry (\w+)\((.*?)\)", re.DOTALL)
README = (kernels.HERE / "README.md").read_text(encoding="utf-8")


def ptxas(package: str) -> Path:
    """NVIDIA's assembler: a dependency of the tests, so that this is never left out."""
    spec = find_spec(package)
    assert spec, f"{package} is a dependency of the tests"
    return Path(next(iter(spec.submodule_search_locations or []))) / "bin" / "ptxas"


@pytest.mark.parametrize(
    ("package", "file", "architecture"),
    [
        *[("nvidia.cuda_nvcc", "50", one) for one in OLD],
        *[("nvidia.cuda_nvcc", "75", one) for one in NEW if one not in ("88", "110")],  # those came with CUDA 13
        *[("nvidia.cu13", "75", one) for one in NEW],
    ],
)
def test_every_architecture_of_its_range_takes_it(package, file, architecture, tmp_path) -> None:
    source = kernels.HERE / f"gpustrap.sm_{file}.ptx"
    done = subprocess.run(
        [ptxas(package), f"-arch=sm_{architecture}", "-v", source, "-o", tmp_path / "cubin"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "cubin").stat().st_size
    assert " 0 bytes spill stores" in done.stderr
    assert not re.search(r"[1-9]\d* bytes spill", done.stderr), "registers do not fit"


@pytest.mark.parametrize(("file", "version"), [("75", "6.5"), ("50", "6.0")])
def test_ptx_is_of_a_version_that_old_drivers_know(file, version) -> None:
    text = kernels.modules()[file]
    assert f"\n.version {version}\n.target sm_{file}\n" in text


def test_a_version_without_an_instruction_does_not_assemble(tmp_path) -> None:
    """That is what the test above rests on: lowering the version by hand is no guess."""
    lower = tmp_path / "lower.ptx"
    lower.write_text(kernels.modules()["75"].replace(".version 6.5", ".version 6.0"))
    done = subprocess.run(
        [ptxas("nvidia.cuda_nvcc"), "-arch=sm_75", lower, "-o", tmp_path / "cubin"], capture_output=True, text=True
    )
    assert done.returncode != 0


@pytest.mark.parametrize("file", ["75", "50"])
def test_entries_are_those_that_the_readme_tells(file) -> None:
    """The lab's libcuda.so.1 is written after it."""
    rows = re.findall(r"^\| `(gpustrap_\w+)` \| `([^`]+)` \|", README, re.MULTILINE)
    told = {name: [word.split()[0] for word in words.split(", ")] for name, words in rows}
    found = {name: re.findall(r"\.param \.(\w+)", words) for name, words in ENTRY.findall(kernels.modules()[file])}
    assert told == found
    assert len(told) == 5


def test_files_are_not_edited_by_hand() -> None:
    """Whoever has NVRTC makes them anew and compares: here only that they say where they come from."""
    for text in kernels.modules().values():
        assert text.startswith(generate.HEADER)
        assert "//" not in text[len(generate.HEADER) :]


def test_the_pattern_is_the_one_that_the_readme_tells() -> None:
    """Numbers of the README's formula, worked out by its own lines."""
    (formula,) = re.findall(r"```\n(x = .*?)\n```", README, re.DOTALL)
    tree = ast.parse(formula.replace("return", "x ="))

    def told(i: int, seed: int) -> int:
        known = {"low32": lambda v: v & 0xFFFFFFFF, "high32": lambda v: v >> 32, "i": i, "seed": seed}
        for line in tree.body:
            exec(compile(ast.Module([line], []), "README", "exec"), known)
            known["x"] &= 0xFFFFFFFF
        return known["x"]

    for i in (0, 1, 12345, (1 << 32) - 1, 1 << 32, (37 << 32) + 99):
        for seed in (0, 7, 0xFFFFFFFF):
            assert pattern(i, seed) == told(i, seed)
    assert len({pattern(i, 3) for i in range(10000)}) == 10000
