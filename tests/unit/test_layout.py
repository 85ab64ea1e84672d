"""Lines for terminals of every width: words stay whole, what goes on is indented, nothing ends in spaces."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.text import Text

from gpustrap.cli import output, progress
from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.report.layout import Columns, Hanging, card

ROWS = (
    ("driver", "nvidia-headless-no-dkms-{branch}-server-open", "580.173.02, 595.71.05"),
    ("cuda", "13.0", "open or proprietary"),
)


def lines(what: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, emoji=False, markup=False, soft_wrap=True)
    console.print(what)
    return str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def test_rows_stand_below_their_headings() -> None:
    assert lines(Columns(("item", "count"), (("a", "1"), ("bb", "22")), right=(1,)), 80) == [
        "item  count",
        "a         1",
        "bb       22",
    ]


def test_columns_give_way_at_spaces_only() -> None:
    assert lines(Columns(("item", "package", "seen versions"), ROWS), 72) == [
        "item    package                                       seen versions",
        "driver  nvidia-headless-no-dkms-{branch}-server-open  580.173.02,",
        "                                                      595.71.05",
        "cuda    13.0                                          open or",
        "                                                      proprietary",
    ]


def test_where_that_is_too_narrow_a_row_is_a_block() -> None:
    assert lines(Columns(("item", "package", "seen"), ROWS), 60) == [
        "item driver",
        "  package  nvidia-headless-no-dkms-{branch}-server-open",
        "  seen     580.173.02, 595.71.05",
        "item cuda",
        "  package  13.0",
        "  seen     open or proprietary",
    ]


def test_a_table_of_high_rows_is_blocks_and_empty_cells_are_left_out() -> None:
    assert lines(Columns(("Choice", "Value", "Why"), (("docker", "", "word " * 30),), named=False), 50)[:3] == [
        "docker",
        "  Why    word word word word word word word word",
        "         word word word word word word word word",
    ]


def test_what_goes_on_keeps_its_prefix() -> None:
    text = "word " * 10
    assert lines(Hanging(text, "    │ ", "    │ "), 30) == ["    │ word word word word word"] * 2
    assert lines(Hanging("a b c d\nsecond", "Next: "), 24) == ["Next: a b c d", "      second"]
    assert lines(card((("ids", "10de:2204"), ("memory", "24 GiB"))), 80) == ["  ids     10de:2204", "  memory  24 GiB"]


WORDS = st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=1, max_size=25)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)


def test_only_behind_marks_a_long_word_is_broken() -> None:
    address = "https://example.org/" + "a" * 60
    assert lines(Hanging(f"see {address}", "Next: "), 40) == ["Next: see", f"      {address}"]
    assert lines(Columns(("kind", "address"), (("apt", address),)), 40) == ["kind apt", f"  address  {address}"]
    assert [len(line) for line in lines(Hanging(address, "  │ ", "  │ "), 40)] == [40, 40, 12]


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(40, 160))
def test_of_any_table_every_word_stays_whole_and_no_line_is_too_long(rows: list[tuple[str, ...]], width: int) -> None:
    shown = lines(Columns(("one", "two words", "three"), rows), width)
    assert [line for line in shown if line != line.rstrip() or len(line) > width] == []
    said = {word for line in shown for word in line.split()}
    assert {word for row in rows for cell in row for word in cell.split()} <= said


def test_no_word_means_anything_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """Else :1234: is a picture and [bold] a colour; PCI ids, MACs and image tags have the one, paths the other."""
    odd = "image:tag:8086:1234:heart:[bold] a:smiley:b"
    problem = Problem("code", odd, odd, ExitCode.REFUSED, odd, odd)
    output.show_problems([problem])
    output.tell(odd)
    output.say_next(odd)
    output.emit(None, Columns((odd, "b"), ((odd, Text(odd)),)), output.Format.TABLE)
    with progress.progress(odd) as say:
        say(progress.Step(odd, odd, done=True))
    board = progress._Board(odd)
    board.take(progress.Step(odd, odd))
    said = "".join(capfd.readouterr())
    assert said.count(odd) == 11
    assert " ".join(lines(board.draw(), 400)).count(odd) == 3


def test_a_refusal_is_indented(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.stderr, "_width", 80)
    words = "some words " * 12
    output.show_problems([Problem("code", "node n1", words, ExitCode.REFUSED, f"{words}\n{words}", words)])
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said[1:] if not line.startswith("  ")] == []
    assert sum(line.startswith("    │ ") for line in said) == 4


def test_progress_counts_nodes_only_where_there_are_some() -> None:
    board = progress._Board("Planning")
    assert "nodes" not in " ".join(lines(board.draw(), 120))
    board.take(progress.Step("n1", "connecting"))
    assert "0/1 nodes done" in " ".join(lines(board.draw(), 120))
