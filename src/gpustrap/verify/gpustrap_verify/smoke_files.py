"""The smoke scripts as files: an environment's Python runs them as a program of its own."""

from __future__ import annotations

from importlib.abc import InspectLoader
from importlib.util import find_spec
from pathlib import Path

from . import smoke

NAMES = ("__init__", "common", "jax", "modules", "pytorch", "rank", "tensorflow")


def write(place: Path) -> None:
    """Write the package ``smoke`` into a directory; every user can read it, none but us can change it."""
    package = place / "smoke"
    package.mkdir()
    package.chmod(0o755)
    for name in NAMES:
        module = smoke.__name__ if name == "__init__" else f"{smoke.__name__}.{name}"
        spec = find_spec(module)
        assert spec and isinstance(spec.loader, InspectLoader)  # noqa: S101, PT018 - it came with this program
        file = package / f"{name}.py"
        file.write_text(spec.loader.get_source(module) or "", encoding="utf-8")
        file.chmod(0o644)
