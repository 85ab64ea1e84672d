"""Components of a distribution's archive: those of a driver's packages, and those that the node's apt reads."""

from __future__ import annotations

from gpustrap.catalog.schema_stack import DriverPackages
from gpustrap.model.facts import Facts


def components_off(facts: Facts, row: DriverPackages) -> tuple[str, ...]:
    """The components that a driver of the distribution's archive needs and that no source of the node has yet.

    What apt does not read it cannot know: a default Debian has neither contrib nor non-free. None where the archive
    itself is not found among the sources: then nothing is known of it.
    """
    if row.origin != "distribution":
        return ()
    # The release's own suite; trixie-backports with non-free says nothing of trixie. Other archives may have a
    # component of such a name, but no main beside it.
    releases = [s for s in facts.package_manager.sources if s.enabled and "-" not in s.suite]
    archives = {s.uri.rstrip("/") for s in releases if "main" in s.components}
    on = {component for s in releases if s.uri.rstrip("/") in archives for component in s.components}
    return tuple(component for component in row.components if component not in on) if archives else ()
