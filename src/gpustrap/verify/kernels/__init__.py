"""Kernels of the checks, as PTX: README.md says what each does."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def modules() -> dict[str, str]:
    """PTX by the compute capability that it needs, such as ``75``; a device takes the highest that it has."""
    return {path.stem.rpartition("_")[2]: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.ptx"))}
