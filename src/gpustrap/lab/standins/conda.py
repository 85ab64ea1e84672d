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

from gpustrap.lab.standins import frameworks_data
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
    _channel(directory / CHANNEL, data)
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
        raise refusal("py-rattler is not installed", remedy="in the checkout of gpustrap: pip install .") from None
    kept = [file for file in found if str(file).startswith(MODULES) and file.suffix in {".py", ".so"}]
    return [(str(file), Path(str(file.locate()))) for file in kept]


def _channel(directory: Path, data: dict[str, Any]) -> None:
    """A conda channel, indexed by rattler."""
    from rattler.index import index_fs  # noqa: PLC0415 - an optional dependency, checked by `_rattler`

    for subdir in ("linux-64", "linux-aarch64"):
        write(directory / subdir / "repodata.json", json.dumps({"info": {"subdir": subdir}, "packages": {}}))
    for row in data["packages"]:
        programs = {f"bin/{name}": (FILES / source).read_bytes() for name, source in row["programs"].items()}
        _package(directory / "noarch", row, programs)
    for version in data["pythons"]:
        _package(directory / "noarch", {"name": "python", "version": version, "depends": []}, _python(version))
    for row in data["builds"]:
        for python in row["pythons"]:
            for subdir in row["subdirs"]:
                _build(directory / subdir, row, python)
    asyncio.run(index_fs(directory, force=True))


def _python(version: str) -> dict[str, bytes]:
    """The node's Python of that version, as the prefix's own: a venv of it."""
    minor = version.rpartition(".")[0]
    program = fill((FILES / "python_of_node.sh").read_text(encoding="utf-8"), {"version": minor}).encode()
    names = ("bin/python", "bin/python3", f"bin/python{minor}")
    return {"pyvenv.cfg": b"home = /usr/bin\n", **dict.fromkeys(names, program)}


def _build(directory: Path, row: dict[str, Any], python: str) -> None:
    """PyTorch for one Python, as the feedstock names its builds."""
    files = frameworks_data.torch(row["version"], row["cuda"], row["architectures"])
    major, minor = python.split(".")
    package = {
        "name": row["name"],
        "version": row["version"],
        "build": row["build"].format(python=f"{major}{minor}"),
        "build_number": row["number"],
        "depends": [f"python >={python},<{major}.{int(minor) + 1}.0a0", *row["depends"]],
    }
    _package(directory, package, {f"lib/python{python}/site-packages/{path}": data for path, data in files.items()})


def _package(directory: Path, package: dict[str, Any], files: dict[str, bytes]) -> None:
    """One package, in conda's older format, which needs no zstd."""
    build = package.get("build", "simulated_0")
    index = {
        "name": package["name"],
        "version": package["version"],
        "build": build,
        "build_number": package.get("build_number", 0),
        "depends": package["depends"],
        "platform": None,
        "arch": None,
        "subdir": directory.name,
        "license": "Apache-2.0",
        "timestamp": 0,
        **({"noarch": "generic"} if directory.name == "noarch" else {}),
    }
    paths = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(content).hexdigest(),
            "size_in_bytes": len(content),
        }
        for name, content in files.items()
    ]
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(directory / f"{package['name']}-{package['version']}-{build}.tar.bz2", "w:bz2") as archive:
        _add(archive, "info/index.json", json.dumps(index).encode(), 0o644)
        _add(archive, "info/paths.json", json.dumps({"paths": paths, "paths_version": 1}).encode(), 0o644)
        _add(archive, "info/files", "".join(f"{name}\n" for name in files).encode(), 0o644)
        _add(archive, "info/about.json", json.dumps({"summary": "simulated"}).encode(), 0o644)
        for name, content in files.items():
            _add(archive, name, content, 0o755 if name.startswith("bin/") else 0o644)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))
