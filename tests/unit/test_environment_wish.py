"""An environment that is asked for: whatever a person writes gets words, never a crash."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from pydantic import ValidationError

from gpustrap.model.environment import EnvironmentWish


@pytest.mark.parametrize("field", sorted(EnvironmentWish.model_fields))
@pytest.mark.parametrize("value", [["pytorch", "jax"], {"a": 1}, [[]], 3.10, None, True])
def test_values_of_any_kind_get_words(field: str, value: Any) -> None:
    with contextlib.suppress(ValidationError):
        EnvironmentWish.model_validate({"name": "x", "framework": "jax", field: value})


def test_two_frameworks_as_a_list() -> None:
    with pytest.raises(ValidationError, match="must be pytorch, tensorflow, jax, vllm or python"):
        EnvironmentWish.model_validate({"name": "x", "framework": ["pytorch", "jax"]})
