"""The table of docs/verify-method.md: that ours misses nothing, and that the docs say what the program prints."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def detection():
    spec = importlib.util.spec_from_file_location("detection", ROOT / "tests/bench/detection.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_flipped_bit_is_missed_where_tolerances_miss_many() -> None:
    bench = detection()
    flips = 1000
    missed = bench.table(64, flips, 2)
    assert missed.pop(bench.OURS) == 0
    assert 0 < missed.pop(bench.SUMS) < flips / 20, "zeros that became denormals or -0"
    assert len(missed) == 3
    assert all(flips / 10 < one < flips / 2 for one in missed.values())


def test_the_docs_have_the_whole_table() -> None:
    bench = detection()
    text = (ROOT / "docs/verify-method.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| ([^|]+) \| ([\d,]+) \|$", text, re.MULTILINE))
    assert {bench.OURS, bench.SUMS, *bench.PEERS} <= set(told)
    assert told[bench.OURS] == "0"
