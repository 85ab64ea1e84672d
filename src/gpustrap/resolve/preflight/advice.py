"""Advice that was tried: what a plan would have if its owner followed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpustrap.resolve.gpu.candidates import Candidate, all_candidates
from gpustrap.resolve.gpu.driver import plan_driver
from gpustrap.resolve.gpu.driver_refusal import preference
from gpustrap.resolve.gpu.kernel import is_foreign
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.preflight.view import View

FIELD = "driver_"
VARIABLE = "gpustrap_driver_"


def tried(view: View, wishes: dict[str, str | None]) -> Driver | None:
    """The driver if these fields of the request were so; none where that would be refused."""
    request = view.inputs.request.model_copy(update=wishes)
    return plan_driver(replace(view.inputs, request=request, same_request=False), view.driven)[1]


def ways_to(wanted: Candidate, *first: str) -> Iterator[dict[str, str | None]]:
    """Changes of the request that may lead to a driver, the smallest first.

    Args:
        wanted: The driver.
        first: Fields that are set in any case: ``driver_origin``, …
    """
    values = {
        "driver_branch": wanted.branch.branch,
        "driver_flavour": wanted.packages.flavour,
        "driver_origin": wanted.packages.origin,
        "driver_version": None,
    }
    in_the_way = [name.replace(VARIABLE, FIELD) for name in wanted.unlike]
    for more in ((), ("driver_branch",), ("driver_branch", "driver_flavour")):
        yield {name: values[name] for name in values if name in {*first, *in_the_way, *more}}


def to_prebuilt(view: View) -> str:
    """What to set to get modules that the distribution builds and signs; empty where it has none for this node."""
    if is_foreign(view.facts.kernel.running, view.inputs.distro):
        return ""
    prebuilt = [c for c in all_candidates(view.inputs, view.driven) if c.would_do and c.packages.module == "prebuilt"]
    for candidate in sorted(prebuilt, key=lambda c: (-len(c.unlike), preference(c)), reverse=True):
        for way in ways_to(candidate, "driver_origin"):
            driver = tried(view, way)
            if driver and driver.packages.module == "prebuilt":
                return words(way)
    return ""


def words(wishes: dict[str, str | None]) -> str:
    """``set gpustrap_driver_branch: "580" and gpustrap_driver_origin: nvidia``."""
    quoted = {name: f'"{value}"' if name == "driver_branch" else value for name, value in wishes.items()}
    sets = " and ".join(f"gpustrap_{name}: {value}" for name, value in quoted.items() if value)
    out = " and ".join(f"gpustrap_{name}" for name, value in wishes.items() if not value)
    return " and ".join([*([f"set {sets}"] if sets else []), *([f"leave out {out}"] if out else [])])
