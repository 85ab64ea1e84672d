"""The verbs in the order in which ``--help`` lists them. Each is a function that adds itself to the app."""

from __future__ import annotations

from collections.abc import Callable

import typer

from gpustrap.cli import apply, catalog, drift, enroll, env, init, inspect, lab, plan, remove, report, verify

VERBS: tuple[Callable[[typer.Typer], None], ...] = (
    init.add,
    lab.add,
    enroll.add,
    inspect.add,
    plan.add,
    apply.add,
    verify.add,
    drift.add,
    env.add,
    remove.add,
    report.add,
    catalog.add,
)
