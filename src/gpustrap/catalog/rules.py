"""Rules that rows of many kinds share; each yields a sentence for what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise


def missing(where: str, kind: str, wanted: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """References that lead nowhere."""
    yield from (f"{where}: {kind} {name} is not in the catalog" for name in sorted(set(wanted) - set(known)))


def in_order(where: str, keys: Sequence[object]) -> Iterator[str]:
    """Keys that do not stand in order, or stand there twice."""
    for before, after in pairwise(keys):
        if not before < after:  # type: ignore[operator]  # keys of one list are of one kind
            yield f"{where}: {_words(after)} stands behind {_words(before)}"


def versions_in_order(where: str, versions: Sequence[str]) -> Iterator[str]:
    """Versions that do not stand in order, oldest first."""
    yield from in_order(where, [numbers(v) for v in versions])


def numbers(version: str) -> tuple[int, ...]:
    """To compare versions by: 12.10 is more than 12.9."""
    return tuple(int(part) for part in version.split("."))


def _words(key: object) -> str:
    return " ".join(map(_words, key)) if isinstance(key, tuple) else str(key)
