"""A support archive: what a helper needs to see of one node, without what is secret."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpustrap.model.run import RunSummary
from gpustrap.report.node_log import lines_about
from gpustrap.report.redact import redact, redact_data

LOG_CHARACTERS = 2_000_000  # the end of a longer log; the beginning says less


@dataclass(slots=True)
class Bundle:
    """Collects files, each redacted as it comes in.

    Attributes:
        node: The node it is about.
        known: Passwords of this run; taken out wherever they occur.
        files: Name in the archive to content.
    """

    node: str
    known: tuple[str | None, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)

    def add_data(self, name: str, data: Any) -> None:  # noqa: ANN401 - whatever JSON takes
        """Add parsed JSON."""
        clean = redact_data(data, self.known)
        self.files[name] = (json.dumps(clean, indent=2, sort_keys=True, default=str) + "\n").encode()

    def add_text(self, name: str, text: str) -> None:
        """Add a text; of a long one the end. Redacted before it is cut: half a secret is known by nothing."""
        self.files[name] = redact(text, self.known)[-LOG_CHARACTERS:].encode()

    def add_run(self, directory: Path, summary: RunSummary) -> None:
        """Add what a run's directory says about the node, and nothing about the others."""
        others = {n.node for n in summary.nodes} - {self.node}
        mine = summary.model_dump(mode="json")
        for key in ("nodes", "checks"):
            mine[key] = [entry for entry in mine[key] if entry["node"] == self.node]
        self.add_data(f"runs/{directory.name}/summary.json", mine)
        events = _read(directory / "events.jsonl")
        if events:
            self.add_text(f"runs/{directory.name}/events.jsonl", "".join(self._my_events(events.splitlines())))
        log = _read(directory / "ansible.log")
        if log:
            lines = lines_about(self.node, others, log.rstrip("\n"))
            self.add_text(f"runs/{directory.name}/ansible.log", "\n".join(lines) + "\n")

    def _my_events(self, lines: Iterable[str]) -> Iterable[str]:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of a killed run
            if isinstance(event, Mapping) and event.get("node") == self.node:
                yield json.dumps(redact_data(event, self.known), sort_keys=True) + "\n"

    def write(self, path: Path) -> None:
        """Write the archive, readable by the user alone.

        Raises:
            OSError: It exists already, or cannot be written.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(self._archive())

    def _archive(self) -> bytes:
        stream = io.BytesIO()
        # Neither times nor owners: they would tell about the controller and make the same content differ.
        with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for name, content in sorted(self.files.items()):
                member = tarfile.TarInfo(f"gpustrap-{self.node}/{name}")
                member.size, member.mode = len(content), 0o600
                tar.addfile(member, io.BytesIO(content))
        return stream.getvalue()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
