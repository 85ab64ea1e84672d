"""Whether the node's apt reads the part of the archive that the planned driver is in."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.resolve.gpu.candidates import fill
from gpustrap.resolve.gpu.components import components_off
from gpustrap.resolve.gpu.fabric_needs import fabric_needs, fabric_packages
from gpustrap.resolve.gpu.stack import Driver
from gpustrap.resolve.preflight.view import Seen, View, note, some


def look_at_components(view: View) -> Iterator[Seen]:
    """Debian's default has neither contrib nor non-free: the role switches them on, and apt knows versions then."""
    unknown = _unknown(view, view.driver) if view.driver and not view.driver.kept else ()
    off = components_off(view.facts, view.driver.packages) if view.driver and unknown else ()
    if not off:
        return
    sources = [s for s in view.facts.package_manager.sources if s.enabled and "main" in s.components]
    where = f"{' and '.join(off)} of {view.inputs.distro.name}'s archive"
    yield note(
        "components-missing",
        "driver",
        f"it is from {where}, which are not among the node's sources: the role switches them on, "
        f"and gpustrap plan {view.name} after it locks the exact version",
        evidence="\n".join(
            [f"apt on the node does not know {some(unknown)}"]
            + [f"{s.file}: {s.suite} {' '.join(s.components)}" for s in sources]
        ),
        advice=f"to have it locked before: on {view.name}, add {' '.join(off)} to {sources[0].file}, then: "
        f"sudo apt-get update; then gpustrap plan {view.name}",
    )


def _unknown(view: View, driver: Driver) -> tuple[str, ...]:
    """Which of the packages of driver and fabric the node's apt has never heard of."""
    row, manager = driver.packages, view.facts.package_manager
    kinds = fabric_needs(view.facts, view.driven).kinds
    templates = (*row.packages, *(name for kind in kinds for name in fabric_packages(row, kind)))
    names = (fill(view.inputs, template, driver.branch, driver.version) for template in templates)
    return tuple(name for name in names if name not in manager.candidates and name not in manager.packages)
