"""The verbs in the order in which ``--help`` lists them. Each is a function that adds itself to the app."""

from __future__ import annotations

from collections.abc import Callable

import typer

VERBS: tuple[Callable[[typer.Typer], None], ...] = ()
