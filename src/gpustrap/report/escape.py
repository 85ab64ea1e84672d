"""Node output is hostile: what could move a cursor, forge a line or turn text around is made visible."""

from __future__ import annotations

import re
import unicodedata

_MARKDOWN = re.compile(r"[\\`*_\[\]|~$]")
# Where a line begins with it: a heading, a list, a quotation, a rule.
_MARKDOWN_START = re.compile(r"^\d+(?=[.)](?:\s|$))|^(?=[-#+>=:])")
_BACKTICKS = re.compile(r"`+")
_KEPT = {"\n", "\t"}
# Controls, formatting (bidirectional overrides, zero width), line and paragraph separators, lone surrogates, private.
_INVISIBLE = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}


def visible(text: str) -> str:
    r"""Replace every invisible or controlling character but newline and tab by its escape, e.g. ``\x1b``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in _KEPT or unicodedata.category(c) not in _INVISIBLE else _escape(c) for c in text)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{{{number:x}}}"


def one_line(text: str) -> str:
    """Visible text in one line."""
    return " ".join(visible(text).split())


def markdown(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no table cell ended early."""
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN_START.sub(r"\g<0>\\", _MARKDOWN.sub(r"\\\g<0>", plain))


def markdown_code(text: str) -> str:
    """Inline code, whatever backticks it holds. A cell separator cannot be escaped in code, so it is written out."""
    plain = one_line(text).replace("|", "¦")
    ticks = "`" * (max((len(run) for run in _BACKTICKS.findall(plain)), default=0) + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{ticks}{space}{plain}{space}{ticks}" if plain else ""


def markdown_block(text: str) -> str:
    """A fenced block that its content cannot end."""
    plain = visible(text.strip())
    fence = "`" * max(3, max((len(run) for run in _BACKTICKS.findall(plain)), default=0) + 1)
    return f"{fence}text\n{plain}\n{fence}"
