"""Miniforge's installer and a channel, simulated: rattler does the real work behind conda's command line."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import platform
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from gpustrap.lab.standins.parts import FILES, fill, refusal, vendor, write
from gpustrap.model.progress import Progress, Step

CHANNEL = "channel"
PROGRAM = Path(__file__).parent / "conda_program.py"
CONDARC = "# Simulated: as Miniforge's installer leaves it.\nchannels:\n  - conda-forge\n"
MODULES = "rattler/"


def build(directory: Path, progress: Progress) -> None:
    """Make the installer and the channel below `directory`."""
    data = vendor("conda")
    progress(Step("", "making Miniforge's stand-in installer and its channel"))
    payload = _payload(data)
    _channel(directory / CHANNEL, data["packages"])
    values = {"version": data["version"], "size": str(len(payload))}
    header = fill((FILES / "installer.sh").read_text(encoding="utf-8"), values)
    write(directory / _installer(data), header.encode() + payload, mode=0o755)


def variables(directory: Path, url: str) -> dict[str, object]:
    """The request variables of a site that uses it."""
    data = vendor("conda")
    name = _installer(data)
    return {
        "gpustrap_conda_version": data["version"],
        "gpustrap_conda_installer_url": f"{url}/{name}",
        "gpustrap_conda_installer_sha256": hashlib.sha256((directory / name).read_bytes()).hexdigest(),
        "gpustrap_conda_channels": [f"{url}/{CHANNEL}"],
    }


def _installer(data: dict[str, Any]) -> str:
    return str(data["installer"]).format(version=data["version"], machine=platform.machine())


def _payload(data: dict[str, Any]) -> bytes:
    """What the installer unpacks into the prefix."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        _add(archive, "bin/conda", (FILES / "conda.sh").read_bytes(), 0o755)
        _add(archive, "condabin/conda", (FILES / "conda.sh").read_bytes(), 0o755)
        _add(archive, ".condarc", CONDARC.encode(), 0o644)
        _add(archive, "conda-meta/history", b"", 0o644)
        _add(archive, "lib/standin/version", str(data["conda"]).encode(), 0o644)
        _add(archive, "lib/standin/conda_program.py", PROGRAM.read_bytes(), 0o644)
        for name, path in _rattler():
            _add(archive, f"lib/standin/{name}", path.read_bytes(), 0o644)
    return buffer.getvalue()


def _rattler() -> list[tuple[str, Path]]:
    """The files of py-rattler here; its binary uses Python's stable interface, so any node's Python runs it."""
    try:
        found = distribution("py-rattler").files or []
    except PackageNotFoundError:
        raise refusal(
            "py-rattler is not installed", remedy="in the checkout of gpustrap: pip install ."
        ) from None
    kept = [file for file in found if str(file).startswith(MODULES) and file.suffix in {".py", ".so"}]
    return [(str(file), Path(str(file.locate()))) for file in kept]


def _channel(directory: Path, packages: list[dict[str, Any]]) -> None:
    """A conda channel of noarch packages, indexed by rattler."""
    from rattler.index import index_fs  # noqa: PLC0415 - an optional dependency, checked by `_rattler`

    for package in packages:
        _package(directory / "noarch", package)
    for subdir in ("linux-64", "linux-aarch64"):
        write(directory / subdir / "repodata.json", json.dumps({"info": {"subdir": subdir}, "packages": {}}))
    asyncio.run(index_fs(directory, force=True))


def _package(directory: Path, package: dict[str, Any]) -> None:
    """One package, in conda's older format, which needs no zstd."""
    build_string = "simulated_0"
    programs = {f"bin/{name}": (FILES / source).read_bytes() for name, source in package["programs"].items()}
    index = {
        "name": package["name"],
        "version": package["version"],
        "build": build_string,
        "build_number": 0,
        "depends": package["depends"],
        "noarch": "generic",
        "platform": None,
        "arch": None,
        "subdir": "noarch",
        "license": "Apache-2.0",
        "timestamp": 0,
    }
    paths = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(content).hexdigest(),
            "size_in_bytes": len(content),
        }
        for name, content in programs.items()
    ]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{package['name']}-{package['version']}-{build_string}.tar.bz2"
    with tarfile.open(path, "w:bz2") as archive:
        _add(archive, "info/index.json", json.dumps(index).encode(), 0o644)
        _add(archive, "info/paths.json", json.dumps({"paths": paths, "paths_version": 1}).encode(), 0o644)
        _add(archive, "info/files", "".join(f"{name}\n" for name in programs).encode(), 0o644)
        _add(archive, "info/about.json", json.dumps({"summary": "simulated"}).encode(), 0o644)
        for name, content in programs.items():
            _add(archive, name, content, 0o755)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))
