"""An environment without a framework: what it is for imports."""

from __future__ import annotations

from typing import Any

from . import common
from .common import Wanted


def check(_wanted: Wanted) -> dict[str, Any]:
    """Nothing more: every script imports the modules that are asked for."""
    return {"version": ""}


def main() -> None:
    """Be the process."""
    common.run(check)
