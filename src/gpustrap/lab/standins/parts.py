"""What the stand-ins share: their data, running a program, refusing."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode

VENDOR = Path(__file__).parent.parent / "vendor"
FILES = Path(__file__).parent / "files"


def vendor(name: str) -> dict[str, Any]:
    """The transcribed data of one vendor."""
    found = yaml.safe_load((VENDOR / f"{name}.yml").read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise TypeError(f"{name}.yml is no mapping")
    return found


def call(*argv: str, cwd: Path | None = None, stdin: bytes = b"", remedy: str = "") -> bytes:
    """Run a program; its standard output.

    Raises:
        GpustrapError: It is missing or failed.
    """
    try:
        done = subprocess.run(argv, cwd=cwd, input=stdin, capture_output=True, check=False, timeout=300, umask=0o022)
    except FileNotFoundError:
        raise refusal(f"{argv[0]} is not on this machine", remedy=remedy) from None
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise refusal(f"{' '.join(argv[:2])} failed", evidence=words[-1500:], remedy=remedy)
    return done.stdout


def refusal(message: str, *, evidence: str = "", remedy: str = "", code: str = "standins-failed") -> GpustrapError:
    """Why the stand-ins cannot be made here."""
    return GpustrapError(Problem(code, "this machine", message, ExitCode.REFUSED, evidence, remedy))


def fill(template: str, values: dict[str, str]) -> str:
    """A file of ours with its ``@name@`` replaced."""
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template


def write(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)


def lines(*words: Sequence[str]) -> str:
    """Control fields, one ``(name, value)`` a line; empty values are left out."""
    return "".join(f"{name}: {value}\n" for name, value in words if value)
