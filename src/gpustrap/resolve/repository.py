"""A repository of the catalog, as roles take it and as the lock records it."""

from __future__ import annotations

from typing import Any

from gpustrap.catalog.schema_stack import Repository
from gpustrap.model.lock import LockedRepository
from gpustrap.model.request import ANY
from gpustrap.resolve.parts import Inputs


def locked(inputs: Inputs, row: Repository) -> LockedRepository:
    """What the lock says of it; a mirror of the user's takes the place of its base."""
    mirror = _mirror(inputs, row)
    return LockedRepository(
        name=row.name,
        uri=_uri(inputs, row),
        fingerprints=_fingerprints(inputs, row),
        sha256="" if mirror else row.sha256,
        retention=row.retention,
        snapshot="" if mirror else row.snapshot,
    )


def variables(inputs: Inputs, row: Repository) -> dict[str, Any]:
    """``repository`` and ``key`` of a role's variables, in the shape that role docker has, too."""
    base = _base(inputs, row)
    architecture = inputs.catalog.server.architectures.names[inputs.facts.os.architecture]
    path = row.key or row.keyring
    return {
        "repository": {
            "uri": _uri(inputs, row),
            "suite": inputs.distro.fill(row.suite),
            "components": list(row.components),
            "architectures": [architecture] if row.kind == "apt" else [],
        },
        "key": {
            "url": f"{base}/{inputs.distro.fill(path)}" if path else "",
            "fingerprints": list(_fingerprints(inputs, row)),
            "sha256": "" if _mirror(inputs, row) else row.sha256,
        },
    }


def _mirror(inputs: Inputs, row: Repository) -> str:
    """NVIDIA's repositories are the ones a request can point elsewhere."""
    request = inputs.request
    own = {
        inputs.distro.nvidia: request.nvidia_repository,
        **dict.fromkeys(_toolkit(inputs), request.container_toolkit_repository),
    }
    return own.get(row.name) or ""


def _toolkit(inputs: Inputs) -> tuple[str, str]:
    """The names of the container toolkit's repositories."""
    row = inputs.catalog.container_toolkit
    return row.repository, row.rpm_repository


def _base(inputs: Inputs, row: Repository) -> str:
    return (_mirror(inputs, row) or row.base).rstrip("/")


def _uri(inputs: Inputs, row: Repository) -> str:
    return _base(inputs, row) + inputs.distro.fill(row.path)


def _fingerprints(inputs: Inputs, row: Repository) -> tuple[str, ...]:
    request = inputs.request
    by_name = request.nvidia_key_fingerprints
    own = {
        inputs.distro.nvidia: by_name.get(inputs.distro.nvidia, by_name.get(ANY, ())),
        **dict.fromkeys(_toolkit(inputs), request.container_toolkit_key_fingerprints),
    }
    return own.get(row.name) or row.fingerprints
