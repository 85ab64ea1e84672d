"""The base of every pydantic model at an edge: frozen, and strict about unknown names."""

import math
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler, field_validator

NUMBER_LIMIT = 2**64  # no count, size or time of a real machine is larger
NUMBERS = (int, float)
DEPTH_LIMIT = 8  # of dictionaries and lists in each other; what we ask for is flatter


class Frozen(BaseModel):
    """Frozen, ``extra="forbid"``: a misspelt key is an error, never silently ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FromNode(BaseModel):
    """What a node sends. Hostile input: typed and frozen; keys of a newer probe are dropped, not trusted.

    Numbers are finite and of a size to reckon with: ``1e999`` is JSON, and Python makes infinity of it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", str_max_length=4096, allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _reckonable(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:  # noqa: ANN401 - any field
        """Look before pydantic does, which overflows on some, and after, as it makes numbers of texts."""
        _refuse_beyond_reckoning(value)
        read = validate(value)
        if read is not value:
            _refuse_beyond_reckoning(read)
        return read


def _refuse_beyond_reckoning(value: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """Refuse a number that is infinite, not a number or beyond a machine's, however deep, and too much depth.

    Raises:
        ValueError: There is one.
    """
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [other for other in level if type(other) is not str]  # most of facts is text, and text is never beyond
        if not level:
            return
        for number in level:
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError("a number is infinite or none")
            if isinstance(number, NUMBERS) and abs(number) >= NUMBER_LIMIT:
                raise ValueError("a number is larger than any machine's")
        level = [inner for outer in level for inner in _inside(outer)]
    if level:
        raise ValueError("lists and dictionaries are nested too deep")


def _inside(value: Any) -> Iterable[Any]:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
