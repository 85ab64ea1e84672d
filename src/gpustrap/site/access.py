"""What enroll found out about getting into a node, kept in the site."""

from __future__ import annotations

import json
from dataclasses import asdict

from pydantic import TypeAdapter, ValidationError

from gpustrap.model.node import Access
from gpustrap.model.site import Site
from gpustrap.site.files import write_atomically

FILE = "access.json"
_ACCESS = TypeAdapter(Access)


def load_access(site: Site, name: str) -> Access | None:
    """The stored access of a node; None where it was never enrolled or the file is of no use any more."""
    try:
        return _ACCESS.validate_json((site.node(name) / FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def save_access(site: Site, name: str, access: Access) -> None:
    """Keep the access of a node, readable by the user alone."""
    write_atomically(site.node(name) / FILE, json.dumps(asdict(access), indent=2, sort_keys=True) + "\n")
