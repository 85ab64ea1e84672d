"""What is wrong with the value of a variable, and what to write instead, from pydantic's errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpustrap.model.urls import without_credentials
from gpustrap.site.meant import as_yaml, form_of, is_list, taker

SHORT = 60
FRACTION = "must be in quotes: without them, YAML reads 12.10 as 12.1"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A value that a variable does not take.

    Attributes:
        said: After the variable's name.
        instead: What to write there, as YAML; empty where nobody can know.
        taker: The variable that takes it, with its prefix; empty where none does.
    """

    said: str
    instead: str = ""
    taker: str = ""


def wrong_value(item: dict[str, Any]) -> Wrong:
    """One of pydantic's errors about a `Request`, for a person."""
    field, inner = str(item["loc"][0]), item["loc"][1:]
    said, value = in_words(item), item["input"]
    if item["type"] == "string_type" and isinstance(value, float):
        said = f"{FRACTION}; it is {value}"
    other = "" if inner else taker(field, value)
    if other:
        said += f", which {other} takes"
    return Wrong(said, "" if inner else _instead(item["type"], field, value), other)


def place_in(item: dict[str, Any]) -> str:
    """Where in its variable one of pydantic's errors is: ``[0].python``; empty for the whole of it."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"][1:])


def in_words(item: dict[str, Any]) -> str:
    """One of pydantic's errors, about whatever model."""
    value, context = item["input"], item.get("ctx", {})
    form = form_of(str(item["loc"][0])) if item["loc"] else None
    words: dict[str, str] = {
        "missing": "is missing",
        "string_type": "must be text" if isinstance(value, list | dict) else "must be text; put it in quotes",
        "tuple_type": "must be a list",
        "dict_type": "must be a mapping of keys to values",
        "model_type": "must be a mapping of keys to values",
        "bool_parsing": "must be true or false",
        "bool_type": "must be true or false",
        "int_parsing": "must be a whole number",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_parsing": "must be a number",
        "float_type": "must be a number",
        "literal_error": f"must be one of {context.get('expected', '')}",
        "greater_than_equal": f"must be {context.get('ge', '')} or more",
        "string_too_long": f"must have at most {context.get('max_length', '')} characters",
        "value_error": str(context.get("error", "")),
        "extra_forbidden": "is not known here",
    }
    if item["type"] == "missing":
        return words["missing"]
    if value is None or value == "":
        return "has no value"
    if form and item["type"] == "string_pattern_mismatch":
        short = f", e.g. {form.example}" if len(form.example) < SHORT else ""
        words["string_pattern_mismatch"] = f"must be {form.words}{short}"
    said = words.get(item["type"]) or str(item["msg"])
    shown = str(value).lower() if isinstance(value, bool) else without_credentials(repr(value))
    return f"{said}; it is {shown if len(shown) <= SHORT else shown[: SHORT - 3] + '…'}"


def _instead(kind: str, field: str, value: object) -> str:
    form = form_of(field)
    if value is None or value == "":
        example = as_yaml(form.example) if form and len(form.example) < SHORT else ""
        return f"[{example}]" if example and is_list(field) else example
    if kind == "tuple_type" and is_list(field) and isinstance(value, str) and as_yaml(value) == value:
        return f"[{value}]" if len(value) <= SHORT and without_credentials(value) == value else ""
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        text = as_yaml(value)
        return f'{text} or "{value}0", whichever is meant,' if str(value).endswith(".1") else text
    return ""
