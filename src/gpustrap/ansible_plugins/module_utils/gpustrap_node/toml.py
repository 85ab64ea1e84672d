"""Single keys of a TOML file, for which a node's Python may have no reader: read one, set one, leave all other lines.

Standard library only. Enough for files like the container toolkit's: a key on a line of its own below its table's name.
"""

from __future__ import annotations

import re


def _line(table: str, key: str) -> re.Pattern[str]:
    """The key's line in its table; lines of other tables are not looked at."""
    head = r"(?P<head>^[ \t]*\[{0}\][ \t]*\n(?:(?![ \t]*\[).*\n)*?[ \t]*{1}[ \t]*=[ \t]*)".format(
        re.escape(table), re.escape(key)
    )
    return re.compile(head + r"(?P<value>[^#\n]*?)(?P<rest>[ \t]*(?:#.*)?)$", re.MULTILINE)


def value(text: str, table: str, key: str) -> str:
    """A key's value without quotes; empty where it is not set (a commented line sets nothing)."""
    found = _line(table, key).search(text)
    return found.group("value").strip("\"'") if found else ""


def with_value(text: str, table: str, key: str, new: str) -> str:
    """The text with another value for a key that is set."""
    return _line(table, key).sub(lambda m: m.group("head") + new + m.group("rest"), text, count=1)
