"""What can be done with a node once somebody is in: run a command line as the login. Over SSH, or on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from gpustrap.ssh.config import Target

MIB = 1 << 20
MAX_STDERR = 256 << 10  # enough for any message; the rest is read and dropped

Feed = Callable[[bytearray, bytearray], bytes | None]
"""Given all of stdout and stderr so far: what to send next, ``b""`` for nothing yet, None to close stdin."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended. ``rc`` is -1 when it was ended by a signal."""

    rc: int
    stdout: bytes
    stderr: bytes

    @property
    def words(self) -> str:
        """What it said on stderr, or else on stdout, as text for a message."""
        return (self.stderr.strip() or self.stdout.strip()).decode("utf-8", "replace")


class Shell(Protocol):
    """A login's shell on a node. Use as a context manager."""

    @property
    def target(self) -> Target:
        """Whose it is."""

    def __enter__(self) -> Self:
        """Itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""

    def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout: float = 60,
        limit: int = 8 * MIB,
        feed: Feed | None = None,
        pty: bool = False,
    ) -> Completed:
        """Run a command in the login shell.

        Args:
            command: One line for whatever shell the login has; quote with `shlex.quote`.
            stdin: Sent to it, then its stdin is closed.
            timeout: Seconds until it is given up.
            limit: Most bytes of stdout.
            feed: Instead of `stdin`: decides what to send by what was received.
            pty: Give it a terminal; stdout and stderr then come as one.

        Raises:
            GpustrapError: timeout, output-too-large, and what only one of the two ways can have.
        """


def send_once(stdin: bytes) -> Feed:
    """A feed that sends this and then closes stdin."""
    pieces = iter([stdin] if stdin else [])
    return lambda _out, _err: next(pieces, None)
