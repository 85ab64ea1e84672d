"""What every row of the catalog has: where it was read, when, and how sure we are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpustrap.model.base import Frozen

Confidence = Literal["verified", "recalled"]


class Row(Frozen):
    """A row; ``recalled`` means that nobody read it at its source, so a plan that rests on it says so."""

    source: str = Field(min_length=10)
    checked: str = Field(pattern=r"^20\d\d-\d\d-\d\d$")
    confidence: Confidence
