"""``--set NAME=VALUE``: request variables from the command line, checked as those of an inventory are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.request import Request
from gpustrap.site.inventory import PREFIX
from gpustrap.site.wrong import closest, in_words


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
            problems.append(_unknown(name))
        else:
            try:
                values[field] = _value(field, value)
            except ValidationError as error:
                said = in_words(dict(error.errors(include_url=False)[0]))
                problems.append(_problem(name, "bad-value", f"{name} {said}", f"correct --set {name}=…"))
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
    except ValidationError:
        return getattr(Request.model_validate({field: yaml.safe_load(text)}), field)


def _unknown(name: str) -> Problem:
    near = closest(f"{PREFIX}{name.removeprefix(PREFIX)}", (f"{PREFIX}{field}" for field in Request.model_fields))
    hint = f"; did you mean {near}?" if near else ""
    remedy = f"write --set {near}=…" if near else "see docs/variables.md for all of them"
    return _problem(name, "unknown-variable", f"there is no variable {name}{hint}", remedy)


def _problem(name: str, code: str, message: str, remedy: str) -> Problem:
    return Problem(code, f"--set {name}", message, ExitCode.USAGE, remedy=remedy)
