"""The Python package index and PyTorch's own, simulated: what their frameworks calculate with is the node's lab GPUs.

Real are uv, which this machine's pip fetches once, and the pages, hashes and metadata that uv reads.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpustrap.lab.standins import frameworks_data, frameworks_index
from gpustrap.lab.standins.frameworks_data import data
from gpustrap.lab.standins.parts import call, write
from gpustrap.model.progress import Progress, Step

SIMPLE, WHL = "simple", "whl"
FETCH_REMEDY = "python3 -m pip download --no-deps uv   (this machine's pip must reach a package index)"


def build_pypi(directory: Path, progress: Progress) -> None:
    """Make the package index below `directory`.

    Raises:
        GpustrapError: This machine's pip cannot fetch what is real.
    """
    for row in data()["real"]:
        progress(Step("", f"fetching {row['name']} {row['version']} with this machine's pip"))
        for platform in row["platforms"]:
            _fetch(directory / SIMPLE / row["name"], row, platform)
    progress(Step("", "making the stand-in package index"))
    frameworks_index.put(directory / SIMPLE, frameworks_data.pypi())


def build_pytorch(directory: Path, progress: Progress) -> None:
    """Make PyTorch's indexes below `directory`."""
    progress(Step("", "making the stand-ins of PyTorch's indexes"))
    for variant in frameworks_data.variants():
        frameworks_index.put(directory / WHL / variant, frameworks_data.pytorch(variant))


def variables(url: str) -> dict[str, object]:
    """The request variables of a site that uses them, by the URL of the directory that holds both."""
    return {
        "gpustrap_python_index": f"{url}/{data()['index']}",
        "gpustrap_pytorch_index": f"{url}/{data()['pytorch_indexes']}",
    }


def _fetch(place: Path, row: dict[str, Any], platform: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    wanted = ("--platform", platform, "--python-version", "3.11", "--implementation", "py", "--abi", "none")
    with TemporaryDirectory() as scratch:
        call(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *wanted),
            *("--dest", scratch, f"{row['name']}=={row['version']}"),
            remedy=FETCH_REMEDY,
        )
        for wheel in Path(scratch).glob("*.whl"):
            shutil.copyfile(wheel, place / wheel.name)
            (place / wheel.name).chmod(0o644)
            write(place / f"{wheel.name}.metadata", _metadata(wheel))


def _metadata(wheel: Path) -> bytes:
    import zipfile  # noqa: PLC0415 - for this line alone

    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))
