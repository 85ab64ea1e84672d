"""docs/exit-codes.md says what exitcodes.py does."""

from __future__ import annotations

import re

import pytest

from gpustrap.content import content_root
from gpustrap.exitcodes import SEVERITY, ExitCode

PAGE = content_root() / "docs" / "exit-codes.md"


@pytest.fixture
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_every_code_has_a_row_and_its_name(page: str) -> None:
    rows = dict(re.findall(r"^\| (\d+) \| ([a-z ]+) \|", page, re.MULTILINE))
    assert {int(code): name.split()[0] for code, name in rows.items()} == {
        int(code): code.name.lower().split("_")[0] for code in ExitCode
    }


def test_the_order_is_that_of_the_program(page: str) -> None:
    order = re.search(r"^(\d+(?:, \d+)+)\.$", page, re.MULTILINE)
    assert order
    assert [int(n) for n in order.group(1).split(", ")] == [int(c) for c in SEVERITY]
