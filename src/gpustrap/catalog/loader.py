"""Reads the catalog that is shipped with this gpustrap."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from gpustrap.catalog.schema import Catalog, CondaInstaller, Distro, Docker, Server

DIRECTORY = Path(__file__).parent


@cache
def load_catalog() -> Catalog:
    """The whole catalog; a mistake in it is a bug of gpustrap and ends as one."""
    digest = hashlib.sha256()
    for path in sorted(DIRECTORY.glob("*.yml")):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return Catalog(
        distros=TypeAdapter(tuple[Distro, ...]).validate_python(_read("distros")),
        docker=Docker.model_validate(_read("docker")),
        conda=TypeAdapter(tuple[CondaInstaller, ...]).validate_python(_read("conda")),
        server=Server.model_validate(_read("server")),
        digest=f"sha256:{digest.hexdigest()}",
    )


def _read(name: str) -> Any:  # noqa: ANN401 - pydantic gives it its type
    return yaml.safe_load((DIRECTORY / f"{name}.yml").read_text(encoding="utf-8"))
