"""Every variable whose value has a pattern says in words what that is, with an example that fits."""

from __future__ import annotations

from typing import Any

import pytest

from gpustrap.model.request import Request
from gpustrap.site.meant import form_of
from gpustrap.site.values import in_words

PATTERNS = {
    name: found
    for name, field in Request.model_fields.items()
    for found in (getattr(m, "pattern", None) for m in field.metadata)
    if found
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_has_words_and_an_example(name: str) -> None:
    form = form_of(name)
    assert form, f"{name}: add a Form beside its pattern"
    assert not set(form.words) & set(r"\^$[](){}|?*+"), "words, no regular expression"
    assert getattr(Request.model_validate({name: form.example}), name) == form.example
    item: dict[str, Any] = {"type": "string_pattern_mismatch", "loc": (name,), "input": "x", "msg": "", "ctx": {}}
    assert in_words(item).startswith(f"must be {form.words}")


def test_there_are_patterns() -> None:
    assert len(PATTERNS) >= 5
