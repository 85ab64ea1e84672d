"""Redaction: each case of tests/cases/redact, and what holds for all of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.report.redact import redact, redact_data

CASES = Path(__file__).parents[1] / "cases" / "redact"


def load_cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in yaml.safe_load((CASES / name).read_text())]


def check(case: dict[str, Any], shown: str) -> None:
    for secret in case.get("gone", []):
        assert secret not in shown, shown
    for word in case.get("stays", []):
        assert str(word) in shown, shown


@pytest.mark.parametrize("case", load_cases("texts.yml"))
def test_text(case: dict[str, Any]) -> None:
    once = redact(case["text"], case.get("known", ()))
    check(case, once)
    check(case, redact(once))  # nothing is mangled by a second time


@pytest.mark.parametrize("case", load_cases("texts.yml"))
def test_text_inside_data(case: dict[str, Any]) -> None:
    shown = redact_data({"stdout": case["text"]}, case.get("known", ()))["stdout"]
    check(case, shown)


@pytest.mark.parametrize("case", load_cases("data.yml"))
def test_data(case: dict[str, Any]) -> None:
    check(case, str(redact_data(case["data"])))


def test_data_stays_json() -> None:
    data = {"a": [1, 2.5, None, True, {"token": ["x" * 9]}], "b": "plain"}
    assert json.loads(json.dumps(redact_data(data))) == {
        "a": [1, 2.5, None, True, {"token": "[redacted]"}],
        "b": "plain",
    }


@pytest.mark.parametrize(
    "text",
    [
        ("a" * 50 + " password" * 3 + "=" + "\"'" * 20 + "\n") * 1000,
        "a-" * 60_000,
        "a.password" * 10_000,
        "eyJ-" * 15_000,
        "password='" * 10_000,
        'password: "x\n' * 10_000,
        "-----BEGIN PRIVATE " * 5_000,
        "http://" * 15_000,
        "password" + " " * 60_000,
    ],
    ids=lambda text: text[:20],
)
def test_no_text_of_a_node_can_hold_it_up(text: str) -> None:
    start = time.monotonic()
    redact(text)
    assert time.monotonic() - start < 20  # a pattern that backtracks over all of it takes hours
