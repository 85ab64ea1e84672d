"""Keeps the passwords of a run out of everything that is written or shown."""

from __future__ import annotations

from collections.abc import Iterable

MASK = "********"
SHORTEST = 4  # shorter strings occur by chance in ordinary words; masking them would only mangle the text


class Mask:
    """Replaces the given secrets in texts; longest first, so that no tail of one survives."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        self._secrets = sorted({s for s in secrets if s and len(s) >= SHORTEST}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text
