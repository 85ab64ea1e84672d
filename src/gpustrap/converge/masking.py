"""Keeps the passwords of a run out of everything that is written or shown."""

from __future__ import annotations

from collections.abc import Iterable

from gpustrap.model.spellings import spellings

MASK = "********"


class Mask:
    """Replaces the given secrets in texts, however they are spelt there."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        self._spellings = spellings(secrets)

    def __call__(self, text: str) -> str:
        """The text without the secrets."""
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text
