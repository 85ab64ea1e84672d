"""A secret as it may appear in a text: plain, and as JSON, Python, a shell or a URL would write it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

SHORTEST = 4  # shorter strings occur by chance in ordinary words; taking them out would only mangle the text


def spellings(secrets: Iterable[str | None]) -> tuple[str, ...]:
    """Every spelling of every secret, longest first, so that no tail of one survives.

    Args:
        secrets: Passwords; what is empty or shorter than `SHORTEST` is left out.
    """
    found = {form for secret in secrets if secret and len(secret) >= SHORTEST for form in _forms(secret)}
    return tuple(sorted(found, key=len, reverse=True))


def _forms(secret: str) -> Iterable[str]:
    yield secret
    for ascii_only in (True, False):
        inside = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield inside
        yield json.dumps(inside, ensure_ascii=ascii_only)[1:-1]  # a program's JSON inside Ansible's
    yield repr(secret)[1:-1]
    yield secret.replace("'", "'\"'\"'")  # a shell word
    yield secret.replace("'", "''")  # YAML
    yield quote(secret, safe="")
