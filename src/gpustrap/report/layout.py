"""Lines as wide as the terminal: words stay whole, what goes on is indented, and no line ends in spaces.

rich's own tables fill cells up with spaces and break words where columns get narrow; a version or the name of a
package that is broken in two cannot be read or copied.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group
from rich.text import Text

GAP = 2
TALLEST = 4  # lines of a table's row; a row that needs more is easier to read as a block
NARROWEST = 16  # of a text beside its indentation; a terminal narrower than that folds as it likes
Words = str | Text


@dataclass(frozen=True, slots=True)
class Hanging:
    """A text behind a prefix.

    A word that is too long for a line, such as an address, sticks out: the terminal breaks it, and it can be copied.
    Only where every line has a mark before it, as evidence has, it is broken here.

    Attributes:
        text: May have several lines.
        first: Before the first line.
        rest: Before all others; as many spaces as ``first`` is wide, if left out.
    """

    text: Words
    first: Words = ""
    rest: Words | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Its lines."""
        first = _text(self.first)
        rest = Text(" " * first.cell_len) if self.rest is None else _text(self.rest)
        width = options.max_width - max(first.cell_len, rest.cell_len)
        marked = bool(rest.plain.strip())
        for number, line in enumerate(_wrapped(console, self.text, max(width, NARROWEST), fold=marked)):
            yield _line(rest if number else first, line)


def card(pairs: Iterable[tuple[str, Words]], width: int = 0) -> Group:
    """A name and a text a line, the texts below each other.

    Args:
        pairs: Names and texts.
        width: Of the names, at least.
    """
    rows = tuple(pairs)
    width = max((width, *(len(name) for name, _ in rows)))
    return Group(*(Hanging(text, Text(f"  {name.ljust(width)}  ", style="dim")) for name, text in rows))


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows below headings; where the terminal is too narrow for that, a small block for each row.

    Attributes:
        headings: One for each column.
        rows: As many cells each.
        right: Numbers of the columns that stand to the right.
        named: The title of a block begins with the first heading; else it is the first cell alone.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Words]]
    right: Collection[int] = ()
    named: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text | Group]:
        """Its lines, or its blocks."""
        head = [Text(heading, style="dim") for heading in self.headings]
        rows = [head, *([_text(cell) for cell in row] for row in self.rows)]
        widths = _widths(list(zip(*rows, strict=True)), options.max_width)
        drawn = [[list(_wrapped(console, c, w)) for c, w in zip(row, widths, strict=True)] for row in rows]
        if sum(widths) + GAP * (len(widths) - 1) > options.max_width or max(_height(row) for row in drawn) > TALLEST:
            yield from (self._block(row) for row in rows[1:])
        else:
            yield from (line for row in drawn for line in self._lines(row, widths))

    def _block(self, row: Sequence[Text]) -> Group:
        title = Text.assemble((f"{self.headings[0]} " if self.named else "", "dim"), row[0])
        title.stylize("bold", len(title) - len(row[0]))
        told = [(name, cell) for name, cell in zip(self.headings[1:], row[1:], strict=True) if cell.plain]
        return Group(Hanging(title, "", "  "), card(told, max(map(len, self.headings[1:]))))

    def _lines(self, row: Sequence[Sequence[Text]], widths: Sequence[int]) -> Iterator[Text]:
        for number in range(_height(row)):
            parts: list[Words] = []
            for column, (lines, width) in enumerate(zip(row, widths, strict=True)):
                cell = lines[number] if number < len(lines) else Text()
                spaces = " " * (width - cell.cell_len)
                parts += [spaces, cell, " " * GAP] if column in self.right else [cell, spaces, " " * GAP]
            yield _line(*parts)


def _text(words: Words) -> Text:
    return Text(words) if isinstance(words, str) else words


def _line(*parts: Words) -> Text:
    """A line as it is, which the console must not break again."""
    whole = Text.assemble(*parts, no_wrap=True, overflow="ignore")
    whole.rstrip()
    return whole


def _wrapped(console: Console, words: Words, width: int, *, fold: bool = False) -> Iterator[Text]:
    text = _text(words).copy()
    text.expand_tabs(8)
    for whole in text.split("\n", allow_blank=True):
        lines = whole.wrap(console, width, overflow="fold") if fold else whole.divide(_breaks(whole.plain, width))
        for line in lines:
            line.rstrip()
            yield line


def _breaks(text: str, width: int) -> Iterator[int]:
    """Where lines begin; only words do."""
    used = 0
    for number, word in enumerate(re.finditer(r"\S+\s*", text)):
        if number and used + cell_len(word[0].rstrip()) > width:
            yield word.start()
            used = 0
        used += cell_len(word[0]) if number else cell_len(text[: word.end()])


def _height(row: Sequence[Sequence[Text]]) -> int:
    return max(map(len, row))


def _widths(columns: Sequence[Sequence[Text]], most: int) -> list[int]:
    """The width of each column: what it likes, or cut down together, but never below its longest word."""
    longest = [max(_longest_word(cell) for cell in column) for column in columns]
    liked = [max(max(line.cell_len for line in cell.split()) for cell in column) for column in columns]
    space = most - GAP * (len(columns) - 1)
    for cap in range(max(liked), 0, -1):
        widths = [max(word, min(like, cap)) for word, like in zip(longest, liked, strict=True)]
        if sum(widths) <= space:
            return widths
    return [max(word, 1) for word in longest]


def _longest_word(cell: Text) -> int:
    return max((Text(word).cell_len for word in cell.plain.split()), default=1)
