"""Every row of the catalog's frameworks against the stand-in indexes, which were transcribed without it.

The real uv resolves each row for its newest Python on each of its machines and installs what it found.
Python 3.11 may be all that this machine has, so uv is told which Python and machine to install for, and installs into
a directory of its own. A wrong name or version in the catalog fails here.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

import gpustrap.lab
from gpustrap.catalog import loader
from gpustrap.catalog.loader import load_catalog
from gpustrap.catalog.schema import Catalog
from gpustrap.catalog.schema_frameworks import Wheel
from gpustrap.lab.standins import frameworks, frameworks_data, frameworks_index

uv = pytest.importorskip("uv", reason="uv resolves and installs; pip install uv")

PYTORCH = "https://download.pytorch.org/whl"
BUILDS = {  # where a framework says what its build is
    "jax": ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax"),
    "pytorch": ("torch",),
    "tensorflow": ("tensorflow",),
    "vllm": ("torch",),
}


def mirror() -> ModuleType:
    """The lab's web server, which is a program of a container."""
    path = Path(gpustrap.lab.__file__).parent / "files" / "mirror.py"
    spec = importlib.util.spec_from_file_location("mirror", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """The indexes, served as a lab serves them; without the two packages that are real."""
    place = tmp_path_factory.mktemp("served")
    frameworks_index.put(place / "pypi" / "simple", frameworks_data.pypi())
    frameworks.build_pytorch(place / "pytorch", lambda _step: None)
    program = mirror()
    program.Handler.log_message = lambda *_words: None
    server = program.server(str(place), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield frameworks.variables(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


class Uv:
    """The real uv, with a cache and settings of its own."""

    def __init__(self, place: Path, variables: dict[str, object]) -> None:
        self.place, self.variables = place, variables

    def call(self, row: Wheel, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
        environment = {**kept, "UV_CACHE_DIR": str(self.place / "cache"), "UV_NO_CONFIG": "1"}
        index = ("--default-index", str(self.variables["gpustrap_python_index"]))
        if row.index:
            own = row.index.replace(PYTORCH, str(self.variables["gpustrap_pytorch_index"]))
            index += ("--index", own, "--index-strategy", "unsafe-best-match")
        command = [uv.find_uv_bin(), "pip", *words, *index, "--no-build", "--quiet"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def differences(row: Wheel, place: Path, variables: dict[str, object]) -> Iterator[str]:
    """What is not as the indexes have it."""
    held = {package.tag.partition("-")[0] for package in _held(row)}
    for python in row.pythons if held and "py3" not in held and "cp38" not in held else ():
        if f"cp{python.replace('.', '')}" not in held:
            yield f"no build for Python {python}"
    for machine, compute in row.compute.items():
        yield from _installed(row, machine, compute, place, Uv(place.parent, variables))


def _held(row: Wheel) -> list[frameworks_index.Package]:
    variant = row.index.rpartition("/")[2]
    packages = frameworks_data.pytorch(variant) if row.index else frameworks_data.pypi()
    name = {"pytorch": "torch"}.get(row.framework, row.framework)
    return [one for one in packages if one.name == name and one.version.partition("+")[0] == row.version]


def _installed(row: Wheel, machine: str, compute: tuple[str, ...], place: Path, real: Uv) -> Iterator[str]:
    place.mkdir(parents=True, exist_ok=True)
    (place / "in").write_text(f"{row.requirement}\n")
    (place / "constraints").write_text("".join(f"{text}\n" for text in row.constraints))
    target = place / machine
    where = (
        "--python-version",
        row.pythons[-1],
        "--python-platform",
        f"{machine}-manylinux_2_39",
        "--target",
        str(target),
    )
    done = real.call(row, "install", *where, "-r", str(place / "in"), "--constraints", str(place / "constraints"))
    if done.returncode != 0:
        yield f"{machine}: {' '.join(done.stderr.split())}"
        return
    if "warning" in done.stderr:
        yield done.stderr
    yield from (f"{machine}: {text}" for text in _other_build(row, compute, target))
    shutil.rmtree(target)


def _other_build(row: Wheel, compute: tuple[str, ...], target: Path) -> Iterator[str]:
    """What is not as the catalog has it of what was installed."""
    variant = row.index.rpartition("/")[2]
    if row.index and not (target / f"torch-{row.version}+{variant}.dist-info").is_dir():
        yield "it is the package index's, not PyTorch's"  # which uv takes in silence
    name = {"pytorch": "torch"}.get(row.framework, row.framework)
    if not list(target.glob(f"{name}-{row.version}*.dist-info")):
        yield f"no {name} {row.version}"
    build = _build(target, row)
    if compute and not f"{build['CUDA']}.".startswith(f"{row.cuda}."):
        yield f"built for CUDA {build['CUDA']}, not {row.cuda}"
    # TensorFlow's one build is for both; without its extra it finds no libraries.
    words = build["ARCHITECTURES"].split() if compute or row.framework == "pytorch" else []
    code = [_capability(word[3:]) for word in words if word.startswith("sm_")]
    ptx = [_capability(word[8:]) for word in words if word.startswith("compute_")]
    claimed = [_capability(text.replace(".", "")) for text in compute]
    if any(not _runs(one, code) and not any(p <= one for p in ptx) for one in claimed):
        yield f"code for {' '.join(words) or 'no GPU'}, not for all of {' '.join(compute)}"
    lowest = _lowest(target)
    able = [max(one, lowest) for one in code if one >= lowest or one[0] == lowest[0]]
    if any(not _runs(one, claimed) for one in able):
        yield f"code for {' '.join(words)}, not only {' '.join(compute) or 'none'}"


def _capability(digits: str) -> tuple[int, int]:
    return int(digits[:-1]), int(digits[-1])


def _runs(device: tuple[int, int], code: list[tuple[int, int]]) -> bool:
    return any(one[0] == device[0] and one <= device for one in code)


def _lowest(target: Path) -> tuple[int, int]:
    """The lowest capability that the installed cuDNN has: 9.10 was the last for what is before Turing."""
    found = next(iter(target.glob("nvidia_cudnn_cu*.dist-info")), None)
    old = found is None or tuple(int(n) for n in found.name.split("-")[1].split(".")[:2]) < (9, 11)
    return (0, 0) if old else (7, 5)


def _build(target: Path, row: Wheel) -> dict[str, str]:
    """What the build says it is."""
    name = next(name for name in BUILDS[row.framework] if (target / name / "_lab" / "build.py").is_file())
    found: dict[str, str] = {}
    exec((target / name / "_lab" / "build.py").read_text(), found)
    return found


def all_differences(rows: list[Wheel], place: Path, variables: dict[str, object]) -> dict[str, list[str]]:
    named = {f"{row.framework} {row.version} {row.variant} {'+'.join(row.compute)}": row for row in rows}
    assert len(named) == len(rows)
    places = [place / str(number) for number in range(len(rows))]
    with ThreadPoolExecutor(8) as pool:  # most of the time uv waits
        found = pool.map(lambda row, where: list(differences(row, where, variables)), rows, places)
        return {name: texts for name, texts in zip(named, found, strict=True) if texts}


# What differs for a reason.
KNOWN: dict[str, list[str]] = {}


def test_every_row_is_found_and_installed(tmp_path: Path, variables: dict[str, object]) -> None:
    catalog = load_catalog()
    assert len(catalog.wheels) > 25
    assert all_differences(list(catalog.wheels), tmp_path / "rows", variables) == KNOWN


# File of the catalog, what is right there, what is put in its place, and the row and words that must say so.
WRONG = (
    ('requirement: "torch==2.13.0"', 'requirement: "torch==2.13.9"', "pytorch 2.13.0 cu130 x86_64", "torch==2.13.9"),
    ("whl/cu132", "whl/cu133", "pytorch 2.15.0 cu132 x86_64", "not PyTorch's"),
    ('"jax[cuda13]==0.12.0.1"', '"jax[cuda-13]==0.12.0.1"', "jax 0.12.0.1 cuda13 x86_64", "code for no GPU"),
    (
        '["3.10", "3.11", "3.12", "3.13"]\n  cuda',
        '["3.10", "3.11", "3.12", "3.13", "3.14"]\n  cuda',
        "tensorflow 2.21.0 cu12 x86_64",
        "Python 3.14",
    ),
    ('"vllm==0.33.0"', '"vllm==0.33.1"', "vllm 0.33.0 cu130 x86_64", "vllm==0.33.1"),
    ('"nvidia-cudnn-cu12<9.11"', '"nvidia-cudnn-cu12<9.1"', "jax 0.12.0.1 cuda12-cudnn910 x86_64", "nvidia-cudnn-cu12"),
    ('["7.0", "7.5", "8.0",', '["6.1", "7.5", "8.0",', "pytorch 2.9.0 cu128 x86_64", "not for all of 6.1"),
)


def wrong_catalog(place: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    copy = Path(shutil.copytree(loader.DIRECTORY, place))
    path = copy / "frameworks.yml"
    text = path.read_text()
    for right, wrong, _row, _words in WRONG:
        assert right in text
        text = text.replace(right, wrong)
    path.write_text(text)
    monkeypatch.setattr(loader, "DIRECTORY", copy)
    load_catalog.cache_clear()
    try:
        return load_catalog()
    finally:
        monkeypatch.undo()
        load_catalog.cache_clear()


def test_wrong_names_in_a_copy_of_the_catalog_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, object]
) -> None:
    catalog = wrong_catalog(tmp_path / "catalog", monkeypatch)
    names = [name for _right, _wrong, name, _words in WRONG]
    rows = [r for r in catalog.wheels if f"{r.framework} {r.version} {r.variant} {'+'.join(r.compute)}" in names]
    found = all_differences(rows, tmp_path / "rows", variables)
    for _right, _wrong, name, words in WRONG:
        assert any(words in text for text in found.get(name, [])), (name, found.get(name))


def test_uv_of_the_catalog_is_the_one_that_the_index_serves() -> None:
    (row,) = (row for row in frameworks_data.data()["real"] if row["name"] == "uv")
    assert {one.version for one in load_catalog().uv} == {row["version"]}
    for one in load_catalog().uv:
        assert any(one.file.startswith(f"uv-{row['version']}-py3-none-{platform}") for platform in row["platforms"])
