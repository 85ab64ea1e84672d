"""How sure a choice is: as sure as the least sure thing it rests on."""

from __future__ import annotations

from gpustrap.catalog.row import Confidence, Row


def confidence(*rows: Row | None, unread: bool = False) -> Confidence:
    """``recalled`` where one of the rows is, or a version was read nowhere.

    Args:
        rows: Every row of the catalog that the choice rests on; None where there is none.
        unread: Something else was not read: a version that nobody saw in that origin, code of which failures are told.
    """
    recalled = unread or any(row is not None and row.confidence == "recalled" for row in rows)
    return "recalled" if recalled else "verified"
