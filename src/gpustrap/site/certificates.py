"""Reads certificates that an earlier verification left."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.certificate import Certificate, Fleet

VERSION = 1
MAX_BYTES = 256 << 20
SHOWN = 5
KINDS: dict[str, type[Certificate] | type[Fleet]] = {"certificate": Certificate, "fleet": Fleet}


def read_certificates(file: Path) -> dict[str, Certificate]:
    """The certificates in a file, by node: one node's, or a fleet's summary.

    Raises:
        GpustrapError: It cannot be read, is none, or a newer gpustrap wrote it.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refuse(file, "cannot be read", error.strerror or str(error)) from error
    if len(content) > MAX_BYTES:
        raise _refuse(file, f"is larger than {MAX_BYTES >> 20} MiB")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _refuse(file, "is no JSON", str(error)) from error
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in KINDS:
        raise _refuse(file, "is neither a certificate nor the summary of a fleet")
    version = data.get("version")
    if isinstance(version, int) and version > VERSION:
        message = f"was written by a newer gpustrap: version {version}, this one reads {VERSION}"
        raise _refuse(file, message, remedy="update gpustrap")
    try:
        read = KINDS[kind].model_validate_json(content)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:SHOWN]
        words = "\n".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
        raise _refuse(file, "does not have the shape of certificates", words) from error
    return {node.node: node for node in (read.nodes if isinstance(read, Fleet) else (read,))}


def _refuse(file: Path, message: str, evidence: str = "", remedy: str = "") -> GpustrapError:
    remedy = remedy or "name a file that verify wrote: .gpustrap/certificates/fleet.json, or one of nodes/"
    return GpustrapError(
        Problem("certificate-unreadable", str(file), message, ExitCode.USAGE, evidence=evidence[:1000], remedy=remedy)
    )
