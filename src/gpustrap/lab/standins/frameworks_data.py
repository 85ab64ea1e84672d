"""The packages of the stand-in indexes, from what was transcribed of the real ones (``vendor/frameworks.yml``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from gpustrap.lab.standins.frameworks_index import Package
from gpustrap.lab.standins.parts import vendor

SIMULATED = Path(__file__).parent / "simulated"
SHARED = ("gpu.py", "values.py")
Row = dict[str, Any]


@cache
def data() -> Row:
    """What was transcribed."""
    return vendor("frameworks")


def variants() -> list[str]:
    """PyTorch's indexes."""
    return sorted({variant for release in data()["torch"]["releases"] for variant in release["variants"]})


def pypi() -> Iterator[Package]:
    """The packages of the package index, but for those that are real."""
    for release in data()["torch"]["releases"]:
        yield from _torch(release, release["pypi"], local=False)
        yield from _triton(release["triton"])
    for row in data()["frameworks"]:
        yield from _framework(row)
    for name, versions in data()["nvidia"].items():
        platforms = [data()["nvidia_platform"].format(machine=machine) for machine in data()["machines"]]
        yield from (Package(name, version, f"py3-none-{p}") for version in versions for p in platforms)
    for name, row in data()["others"].items():
        yield from _other(name, row)


def pytorch(variant: str) -> Iterator[Package]:
    """The packages of one of PyTorch's indexes; for the rest pip goes to the package index."""
    releases = [release for release in data()["torch"]["releases"] if variant in release["variants"]]
    for release in releases:
        yield from _torch(release, variant, local=True)
    for row in data()["frameworks"]:
        goes_with = row.get("goes_with") or [text.removeprefix("torch==") for text in row.get("requires", ())]
        if row["name"] == "torchvision" and any(release["version"] in goes_with for release in releases):
            yield from _framework({**row, "version": f"{row['version']}+{variant}"})


def architectures(variant: str, version: str, machine: str) -> str | None:
    """What a build of PyTorch has code for; None where there is no such build."""
    if variant == "cpu":
        return ""
    fitting = [
        row
        for row in data()["architectures"]
        if (row["variant"], row["machine"]) == (variant, machine) and _numbers(row["since"]) <= _numbers(version)
    ]
    return max(fitting, key=lambda row: _numbers(row["since"]))["list"] if fitting else None


def torch(version: str, cuda: str, architectures: str) -> dict[str, bytes]:
    """The files of a build of PyTorch."""
    return _module("torch", "torch", {"VERSION": version, "CUDA": cuda, "ARCHITECTURES": architectures})


def _torch(release: Row, variant: str, *, local: bool) -> Iterator[Package]:
    row = data()["torch"]
    for machine in data()["machines"]:
        found = architectures(variant, release["version"], machine)
        if found is None and local:
            continue
        # Of the package index a machine without a build for CUDA gets one without CUDA, which surprises people.
        stack = data()["stacks"][variant if found else "cpu"]
        requires = [*row["requires"], *stack["requires"]] + ([f"triton=={release['triton']}"] if found else [])
        shown = f"{release['version']}+{variant if found else 'cpu'}"
        files = torch(shown, stack["cuda"], found or "")
        for python in release["pythons"]:
            yield Package(
                "torch",
                shown if local else release["version"],
                f"{_cp(python)}-{_cp(python)}-{row['platform'].format(machine=machine)}",
                tuple(requires),
                requires_python=f">={release['pythons'][0]}",
                files=files,
            )


def _triton(version: str) -> Iterator[Package]:
    platforms = [data()["triton_platform"].format(machine=machine) for machine in data()["machines"]]
    for python in data()["triton_pythons"]:
        for platform in platforms:
            yield Package("triton", version, f"{_cp(python)}-{_cp(python)}-{platform}", files=_note("triton", version))


def _framework(row: Row) -> Iterator[Package]:
    pythons, build = row.get("pythons", []), row.get("build", {})
    for machine in data()["machines"] if "{machine}" in row["platform"] else ["x86_64"]:
        platform = row["platform"].format(machine=machine)
        own = [f"{_cp(python)}-{_cp(python)}" for python in pythons] if platform != "any" else []
        starts = ["cp38-abi3"] if row.get("abi") == "abi3" else own or ["py3-none"]
        if "simulates" in row:
            values = {"VERSION": row["version"], "CUDA": build.get("cuda", ""), "CUDNN": build.get("cudnn", "")}
            values["ARCHITECTURES"] = build.get("architectures", {}).get(machine, "")
            files = _module(row["name"].replace("-", "_"), row["simulates"], values)
        else:
            files = _note(row["name"], row["version"])
        for start in starts:
            yield Package(
                row["name"],
                row["version"],
                f"{start}-{platform}",
                tuple(row.get("requires", ())),
                {extra: tuple(texts) for extra, texts in row.get("extras", {}).items()},
                row.get("requires_python") or (f">={pythons[0]}" if pythons else ""),
                files,
            )


def _other(name: str, row: Row) -> Iterator[Package]:
    tag = "" if row.get("sdist") else "py3-none-any"
    yield Package(name, row["version"], tag, tuple(row.get("requires", ())), files=_note(name, row["version"]))


def _note(name: str, version: str) -> dict[str, bytes]:
    """A module that imports and says what it is."""
    text = f'"""{name}, simulated: a stand-in of the gpustrap lab; it does nothing."""\n\n'
    path = f"{name.replace('-', '_').replace('.', '_')}/__init__.py"
    return {path: f'{text}__version__ = "{version}"\nsimulated = True\n'.encode()}


@cache
def _sources(directory: str) -> dict[str, bytes]:
    return {
        path.relative_to(SIMULATED / directory).as_posix(): path.read_bytes()
        for path in sorted((SIMULATED / directory).rglob("*.py"))
    }


def _module(name: str, directory: str, values: Row) -> dict[str, bytes]:
    """A framework that does what a check needs, and in it what its build is."""
    values = {"VERSION": "", "CUDA": "", "CUDNN": "", "ARCHITECTURES": "", **values}
    lines = "".join(f"{key} = {value!r}\n" for key, value in values.items())
    lab = {"__init__.py": b"", "build.py": f'"""What this build is (simulated)."""\n\n{lines}'.encode()}
    lab |= {file: (SIMULATED / file).read_bytes() for file in SHARED}
    own = _sources(directory) or {"__init__.py": _note(name, values["VERSION"])[f"{name}/__init__.py"]}
    return {f"{name}/{path}": content for path, content in own.items()} | {
        f"{name}/_lab/{path}": content for path, content in lab.items()
    }


def _cp(python: str) -> str:
    return f"cp{python.replace('.', '')}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
