"""Reads the catalog that is shipped with this gpustrap."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter

from gpustrap.catalog.row import Row
from gpustrap.catalog.schema import Catalog, CondaInstaller, Distro, Docker, Server
from gpustrap.catalog.schema_frameworks import UvWheel, Wheel
from gpustrap.catalog.schema_gpu import Architecture, Cuda, DriverBranch, Gpu, IdRange, Library
from gpustrap.catalog.schema_preflight import Preflight
from gpustrap.catalog.schema_stack import (
    CdiSupport,
    ContainerToolkit,
    ControllerPython,
    DriverPackages,
    Repository,
)

try:
    from yaml import CSafeLoader as Loader  # ten times as fast, and gpus.yml is long
except ImportError:  # this PyYAML was built without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

DIRECTORY = Path(__file__).parent
R = TypeVar("R", bound=Row)


@cache
def load_catalog() -> Catalog:
    """The whole catalog; a mistake in it is a bug of gpustrap and ends as one."""
    digest = hashlib.sha256()
    for path in sorted(DIRECTORY.glob("*.yml")):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    gpus, containers, server = _read("gpus"), _read("containers"), _read("server")
    return Catalog(
        architectures=_rows(Architecture, gpus["architectures"]),
        id_ranges=_rows(IdRange, gpus["id_ranges"]),
        gpus=_rows(Gpu, gpus["gpus"]),
        drivers=_rows(DriverBranch, _read("drivers")),
        cuda=Cuda.model_validate(_read("cuda")),
        libraries=_rows(Library, _read("libraries")),
        distros=_rows(Distro, _read("distros")),
        repositories=_rows(Repository, _read("repositories")),
        driver_packages=_rows(DriverPackages, _read("packages")),
        docker=Docker.model_validate(containers["docker"]),
        container_toolkit=ContainerToolkit.model_validate(containers["toolkit"]),
        cdi=_rows(CdiSupport, containers["cdi"]),
        wheels=_rows(Wheel, _read("frameworks")),
        conda_builds=_rows(Wheel, _read("frameworks_conda")),
        uv=_rows(UvWheel, _read("uv")),
        controllers=_rows(ControllerPython, server.pop("controllers")),
        conda=_rows(CondaInstaller, _read("conda")),
        server=Server.model_validate(server),
        preflight=Preflight.model_validate(_read("preflight")),
        digest=f"sha256:{digest.hexdigest()}",
    )


def _rows(kind: type[R], data: Any) -> tuple[R, ...]:  # noqa: ANN401 - pydantic gives it its type
    return TypeAdapter(tuple[kind, ...]).validate_python(data)  # type: ignore[valid-type]


def _read(name: str) -> Any:  # noqa: ANN401 - pydantic gives it its type
    return yaml.load((DIRECTORY / f"{name}.yml").read_text(encoding="utf-8"), Loader=Loader)
