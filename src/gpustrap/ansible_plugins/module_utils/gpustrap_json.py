"""Merging our keys into a user's JSON file: parse with a position, merge, name what is ours. Standard library only."""

from __future__ import annotations

import json
from typing import Any

BOM = "\ufeff"


class BadJsonError(Exception):
    """The text is no JSON object; the message says where."""


def parse(data: bytes) -> dict[str, Any]:
    """The object in a JSON file. An empty file is an empty object; a byte order mark and CRLF are taken.

    Raises:
        BadJsonError: With line and column, counted from 1 as editors do.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadJsonError("byte {0}: not UTF-8".format(error.start)) from None
    text = text[1:] if text.startswith(BOM) else text
    if not text.strip():
        return {}
    try:
        found = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if error.lineno <= len(text.splitlines()) else ""
        raise BadJsonError(
            "line {0}, column {1}: {2}: {3}".format(error.lineno, error.colno, error.msg, line.strip()[:80])
        ) from None
    except RecursionError:
        raise BadJsonError("nested too deeply") from None
    if not isinstance(found, dict):
        raise BadJsonError("line 1, column 1: not an object ({...})")
    return found


def merge(existing: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """`existing` with our keys set. Objects are merged key by key; any other value of ours replaces what was there."""
    merged = dict(existing)
    for key, value in ours.items():
        there = existing.get(key)
        merged[key] = merge(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return merged


def render(value: dict[str, Any]) -> bytes:
    """The file as we write it."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def has_bom(data: bytes) -> bool:
    """Whether the file starts with a byte order mark, which older docker daemons refuse."""
    return data.startswith(BOM.encode("utf-8"))


def pointers(ours: dict[str, Any], base: str = "") -> list[Any]:
    """The JSON pointer (RFC 6901) of every leaf of `ours`: what a merge of it owns."""
    found = []
    for key, value in ours.items():
        pointer = "{0}/{1}".format(base, str(key).replace("~", "~0").replace("/", "~1"))
        if isinstance(value, dict) and value:
            found.extend(pointers(value, pointer))
        else:
            found.append(pointer)
    return found


def _refuse_constant(name: str) -> None:
    raise BadJsonError("{0} is no JSON value".format(name))


def _refuse_duplicates(pairs: list[Any]) -> dict[str, Any]:
    found = {}
    for key, value in pairs:
        if key in found:
            raise BadJsonError("key {0} is there twice; which one is meant?".format(json.dumps(key)))
        found[key] = value
    return found
