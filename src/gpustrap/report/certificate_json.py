"""Certificates for programs. docs/certificate.schema.json is their schema.

``python -m gpustrap.report.certificate_json`` writes that file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from gpustrap.content import content_root
from gpustrap.model.certificate import Certificate, Fleet

ANY: TypeAdapter[Certificate | Fleet] = TypeAdapter(Annotated[Certificate | Fleet, Field(discriminator="kind")])


def data(of: Certificate | Fleet) -> dict[str, Any]:
    """What JSON has of it."""
    return of.model_dump(mode="json")


def text(of: Certificate | Fleet) -> str:
    """The file. ASCII, so that nothing a node says moves the cursor of a terminal that shows it."""
    return json.dumps(data(of), indent=2, sort_keys=True) + "\n"


def schema() -> str:
    """The text of docs/certificate.schema.json."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Certificates of gpustrap verify"}
    return json.dumps(head | ANY.json_schema(mode="serialization"), indent=2, ensure_ascii=False) + "\n"


def target(root: Path) -> Path:
    """Where the schema is kept in a checkout."""
    return root / "docs" / "certificate.schema.json"


if __name__ == "__main__":
    target(content_root()).write_text(schema(), encoding="utf-8")
