"""A password is found in whatever spelling a tool writes it."""

from __future__ import annotations

import json
import shlex
from urllib.parse import quote

import pytest
import yaml

from gpustrap.converge.masking import MASK, Mask
from gpustrap.report.redact import redact

HARD = ["pa\"ss\\w'ord", "tür\töffner", "a/b c&d", "it's'so", "\\\\\\\\"]
WRITERS = {
    "plain": str,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda s: json.dumps(s, ensure_ascii=False),
    "JSON in JSON": lambda s: json.dumps({"stdout": json.dumps({"said": s})}),
    "Python": lambda s: repr([s]),
    "shell": shlex.quote,
    "URL": lambda s: "http://" + quote(s, safe="") + ":x",
    "YAML": lambda s: yaml.safe_dump({"p": s}, allow_unicode=True, default_style="'"),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("secret", HARD)
def test_a_password_with_quotes_is_masked_however_it_is_written(secret: str, writer: str) -> None:
    """Only the plain form was: a password with a quote stayed in events and logs, escaped as JSON does."""
    text = f"before {WRITERS[writer](secret)} after"
    for shown, mark in ((Mask([secret])(text), MASK), (redact(text, [secret]), "[redacted]")):
        assert mark in shown
        assert shown.endswith(" after")
        assert not any(part in shown for part in ("ord", "ffner", "d'", "s'so", "so'", "\\\\", "b%20c", "c&d")), shown


def test_the_longest_goes_first() -> None:
    assert Mask(["hunter2", "hunter22"])("hunter22") == MASK
