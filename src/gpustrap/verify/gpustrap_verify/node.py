"""The node as the checks see it: commands under a timeout, files under one root, findings as data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .remedies import Remedy

EVIDENCE_CHARACTERS = 1500
GRACE = 30
STOPPED = "stopped after"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",  # a check of conda must not write into its prefix
}


@dataclass(frozen=True)
class Result:
    """How a command ended.

    Attributes:
        rc: Exit status; None when it could not be started or was stopped for time.
        out: Standard output.
        err: Standard error.
        problem: Why there is no exit status.
    """

    rc: int | None
    out: str = ""
    err: str = ""
    problem: str = ""

    @property
    def ok(self) -> bool:
        """It ran and ended with 0."""
        return self.rc == 0

    @property
    def words(self) -> str:
        """What the command said, for evidence."""
        ending = self.problem or ("" if self.ok else f"exit status {self.rc}")
        return "\n".join(part for part in (self.err.strip(), self.out.strip(), ending) if part)


def run_command(
    argv: Sequence[str], timeout: float, stdin: bytes = b"", environment: Mapping[str, str] = ENVIRONMENT
) -> Result:
    """Run a command in a session of its own; past the timeout, kill all of it."""
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return Result(None, problem=f"{argv[0]} cannot be run: {error.strerror}")
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        out, err = _kill(process)
        return Result(None, _text(out), _text(err), f"{argv[0]} {STOPPED} {timeout:.0f} s")
    return Result(process.returncode, _text(out), _text(err))


def _kill(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=5)
    except (
        subprocess.TimeoutExpired
    ):  # a grandchild in another session still holds the pipes, or it hangs in the kernel
        return b"", b""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@dataclass
class Node:
    """What a check may use.

    Cleaning up may take `GRACE` seconds past the deadline: what we made must go even when there was no time to use it.

    Attributes:
        run_id: Labels everything that this run makes.
        deadline: On the monotonic clock; no check's command runs past it.
        root: Where files are read from; ``/`` except in tests.
        execute: Runs one command.
    """

    run_id: str
    deadline: float
    root: Path = Path("/")
    execute: Callable[..., Result] = run_command

    def run(
        self, *argv: str, timeout: float = 30, stdin: bytes = b"", environment: Mapping[str, str] = ENVIRONMENT
    ) -> Result:
        """Run one command within its own timeout and what is left of the whole."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return Result(None, problem=f"{argv[0]} not started: the time for all checks is used up")
        return self.execute(argv, min(timeout, left), stdin, environment)

    @contextlib.contextmanager
    def cleaning(self) -> Iterator[None]:
        """Within, commands may run past the deadline by the grace."""
        deadline, self.deadline = self.deadline, max(self.deadline, time.monotonic() + GRACE)
        try:
            yield
        finally:
            self.deadline = deadline

    def path(self, absolute: str) -> Path:
        """A path of the node."""
        return self.root / absolute.lstrip("/")


@dataclass
class Finding:
    """What a check found; becomes `model.check.Check` on the controller."""

    verdict: str
    reason: str = ""
    evidence: str = ""
    remedy: Remedy | None = None
    data: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "evidence": shorten(self.evidence),
            "remedy": self.remedy.value if self.remedy else "",
            "data": self.data,
        }


def passed(reason: str = "", **data: Any) -> Finding:  # noqa: ANN401 - whatever JSON takes
    """It is as it should be."""
    return Finding("pass", reason, data=data)


def failed(reason: str, evidence: str = "", remedy: Remedy | None = None) -> Finding:
    """It is not as it should be, or could not be checked."""
    return Finding("fail", reason, evidence, remedy)


def warned(reason: str, evidence: str = "", remedy: Remedy | None = None) -> Finding:
    """It works, and somebody should look."""
    return Finding("warn", reason, evidence, remedy)


def shorten(text: str) -> str:
    """Beginning and end of a long text: tools put the cause at either."""
    text = text.strip()
    if len(text) <= EVIDENCE_CHARACTERS:
        return text
    half = EVIDENCE_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
