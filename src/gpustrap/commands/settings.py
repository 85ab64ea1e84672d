"""``--set NAME=VALUE``: request variables from the command line, checked as those of an inventory are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.request import Request
from gpustrap.model.urls import without_credentials
from gpustrap.site.meant import PREFIX, variable_meant
from gpustrap.site.values import place_in, wrong_value


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """The values by field of `Request`; the last of a name counts.

    A value is text where the variable takes text, so that ``12.10`` is no number; else it is read as YAML.

    Raises:
        GpustrapError: With everything that is wrong with them.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for text in texts:
        name, sign, value = text.partition("=")
        field = name.removeprefix(PREFIX)
        if not sign:
            problems.append(_problem(text, "bad-setting", "it has no value", f"write --set {text}=VALUE"))
        elif not name.startswith(PREFIX) or field not in Request.model_fields:
            problems.append(_unknown(name, value))
        else:
            try:
                values[field] = _value(field, value)
            except ValidationError as error:
                first = dict(error.errors(include_url=False)[0])
                wrong = wrong_value(first)
                way = f"write {_setting(name, wrong.instead)}" if wrong.instead else f"correct --set {name}=…"
                if wrong.taker:
                    way = f"write {_setting(wrong.taker, value)}"
                problems.append(_problem(name, "bad-value", f"{name}{place_in(first)} {wrong.said}", way))
            except yaml.YAMLError:
                problems.append(_problem(name, "bad-value", f"{name} is no YAML", f"correct --set {name}=…"))
    if problems:
        raise GpustrapError(*problems)
    return values


def override(request: Request, settings: dict[str, Any]) -> Request:
    """A request with some of its values replaced."""
    return Request.model_validate(request.model_dump() | settings) if settings else request


def _value(field: str, text: str) -> Any:  # noqa: ANN401 - whatever the variable takes
    """The text itself if the variable takes it, else what YAML makes of it.

    Raises:
        ValidationError: It takes neither.
        YAMLError: It takes no text, and that is no YAML.
    """
    try:
        return getattr(Request.model_validate({field: text}), field)
    except ValidationError as error:
        if error.errors()[0]["type"] == "string_pattern_mismatch":  # text it takes, and not this one
            raise
        return getattr(Request.model_validate({field: yaml.safe_load(text)}), field)


def _unknown(name: str, value: str) -> Problem:
    meant = variable_meant(name, value)
    message = f"there is no variable {name}"
    if not meant:
        return _problem(name, "unknown-variable", message, "see docs/variables.md for all of them")
    shown = meant.value or (value if value and without_credentials(value) == value else "…")
    message += f"; did you mean {meant.variable}?"
    return _problem(name, "unknown-variable", message, f"write {_setting(meant.variable, shown)}")


def _setting(name: str, value: str) -> str:
    """How a shell takes it; text needs YAML's quotes here no more than a list does."""
    bare = value.strip('"')
    return f"--set {shlex.quote(f'{name}={bare}') if bare != '…' else f'{name}={bare}'}"


def _problem(name: str, code: str, message: str, remedy: str) -> Problem:
    return Problem(code, f"--set {name}", message, ExitCode.USAGE, remedy=remedy)
