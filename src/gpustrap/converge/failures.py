"""The failed task in the tool's own words, and what usually helps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

TAIL_LINES = 12
MAX_MESSAGE = 2000
HIDDEN = "its output is hidden, because it may hold secrets (no_log)"

# Ansible 2.19+ stacks its own explanations before the module's words.
_PREFIX = re.compile(
    r"^(?:Task failed: |Module failed: |Action failed: |Finalization of task args [^:]*? failed: |"
    r"Failed to connect to the host via ssh: )+"
)
_EMPTY_WORDS = re.compile(
    r"^(MODULE FAILURE|non-zero return code|One or more items failed|Module result deserialization failed)",
    re.IGNORECASE,
)


def failure_message(result: Mapping[str, Any]) -> str:
    """The words worth reading in the result of a failed task: no JSON, no traceback but its last lines.

    Args:
        result: Ansible's result dictionary, censored where the task said ``no_log``.
    """
    if "censored" in result:
        return HIDDEN
    failed_item = _first_failed_item(result)
    if failed_item is not None:
        return failure_message(failed_item)
    message = _PREFIX.sub("", str(result.get("msg", "") or result.get("reason", "")).strip())
    errors = result.get("argument_errors")
    if isinstance(errors, list) and errors:
        return _cut("\n".join(str(e) for e in errors))
    parts = [] if _EMPTY_WORDS.match(message) else [message]
    for key in ("stderr", "module_stderr", "stdout", "module_stdout"):
        tail = _tail(str(result.get(key) or ""))
        if tail and tail not in message:
            parts.append(tail)
            break
    if "rc" in result and len(parts) != 1:
        parts.insert(0, f"{_program(result)}ended with code {result['rc']}")
    return _cut("\n".join(p for p in parts if p) or message or "it failed without a message")


def _first_failed_item(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    items = result.get("results")
    if not isinstance(items, list):
        return None
    return next((i for i in items if isinstance(i, Mapping) and (i.get("failed") or i.get("unreachable"))), None)


def _program(result: Mapping[str, Any]) -> str:
    command = result.get("cmd")
    if isinstance(command, list) and command:
        return f"{command[0]} "
    return f"{command.split()[0]} " if isinstance(command, str) and command.split() else ""


def _tail(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines()[-TAIL_LINES:])


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else "… " + text[-MAX_MESSAGE:]


@dataclass(frozen=True, slots=True)
class Hint:
    """What usually helps against a failure: a row of hints.yml."""

    id: str
    match: re.Pattern[str]
    hint: str


@cache
def hints() -> tuple[Hint, ...]:
    """The rows of hints.yml, in order: the first that matches is shown."""
    rows = yaml.safe_load((files("gpustrap.converge") / "hints.yml").read_text(encoding="utf-8"))
    return tuple(
        Hint(r["id"], re.compile(r["match"], re.IGNORECASE | re.DOTALL), " ".join(r["hint"].split())) for r in rows
    )


def hint_for(message: str) -> str:
    """What usually helps against this failure; empty if nobody knows.

    Groups of the pattern named in the hint (``{pid}``) are filled from the message.
    """
    for row in hints():
        found = row.match.search(message)
        if found:
            return row.hint.format_map({k: v or "?" for k, v in found.groupdict().items()})
    return ""
