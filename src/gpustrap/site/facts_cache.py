"""The facts of a node as they were last read; for people and reports. No decision rests on them."""

from __future__ import annotations

from pydantic import ValidationError

from gpustrap.model.facts import Facts
from gpustrap.model.site import Site
from gpustrap.site.files import write_atomically

FILE = "facts.json"


def load_facts(site: Site, name: str) -> Facts | None:
    """The stored facts of a node; None where there are none or an older gpustrap wrote them."""
    try:
        return Facts.model_validate_json((site.node(name) / FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def save_facts(site: Site, name: str, facts: Facts) -> None:
    """Keep the facts of a node, readable by the user alone."""
    write_atomically(site.node(name) / FILE, facts.model_dump_json(indent=2) + "\n")
