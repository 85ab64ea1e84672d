"""The directory of a run: events.jsonl, ansible.log (what Ansible said) and summary.json (how it ended)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from gpustrap.converge.events import Event, read_event
from gpustrap.converge.masking import Mask
from gpustrap.model.run import RunSummary

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class RunLog:
    """Writes a run's files, each 0600 and without the secrets it was given.

    Use as a context manager: events are on the disk as soon as they came, so that a crash loses none.
    """

    def __init__(self, directory: Path, mask: Mask) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self._mask = mask
        self._events = _open(directory / "events.jsonl")
        self._log = _open(directory / "ansible.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._events.close()
        self._log.close()

    def write(self, raw: Mapping[str, Any]) -> Event | None:
        """Write down one event of ansible-runner and what Ansible printed with it; give what was kept of it."""
        said = _ESCAPES.sub("", str(raw.get("stdout") or "")).replace("\r\n", "\n").rstrip()
        if said:
            self._log.write(self._mask(said) + "\n")
        event = read_event(raw, self._mask)
        if event is not None:
            self._events.write(json.dumps(event.as_data(), sort_keys=True) + "\n")
        return event


def write_summary(directory: Path, summary: RunSummary) -> None:
    """Write how a run ended."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _open(directory / "summary.json") as stream:
        stream.write(summary.model_dump_json(indent=2) + "\n")


def _open(path: Path) -> TextIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8", buffering=1)
