"""This machine's own shell, in the place of a connection: what runs on a node runs here as a child process."""

from __future__ import annotations

import getpass
import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import IO, Self

from gpustrap.model.node import Access, Endpoint, Escalation, Secrets
from gpustrap.ssh.config import Target
from gpustrap.ssh.problems import local_no_root, local_requiretty, output_too_large, timed_out
from gpustrap.ssh.root_shell import find_access
from gpustrap.ssh.shell import MAX_STDERR, MIB, Completed, Feed, send_once
from gpustrap.ssh.survey import Survey, survey

PYTHON = "/usr/bin/python3"  # never looked up: PATH may lead to a virtual environment, pyenv's or conda's
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KEPT = ("HOME", "LANG", "LOGNAME", "TERM", "USER")
UMASK = 0o022  # a login's; gpustrap's own is for what it keeps in the site
POLL_SECONDS = 0.2


class LocalShell:
    """A shell of the user who runs gpustrap, with the environment of a fresh login and without a terminal.

    Without one sudo never asks there by itself: it gets the password as over SSH, or says that it wants one.

    Attributes:
        target: This machine.
    """

    def __init__(self, name: str) -> None:
        self.target = Target(node=name, host="localhost", port=22, user=getpass.getuser(), key_name="")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing stays open."""

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
        """Run a command; see `Shell`.

        Raises:
            GpustrapError: timeout, output-too-large, sudo-requiretty.
        """
        if pty:  # only asked for where sudo insists on one, and then Ansible's local connection could not use sudo
            raise local_requiretty(self.target.node)
        environment = {"PATH": PATH} | {name: os.environ[name] for name in KEPT if name in os.environ}
        pipe = subprocess.PIPE
        with subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            cwd="/",
            env=environment,
            start_new_session=True,
            umask=UMASK,
        ) as process:
            try:
                out, err = _converse(process, feed or send_once(stdin), limit, time.monotonic() + timeout)
                if len(out) > limit:
                    raise output_too_large(self.target.node, limit, bytes(out))
                return Completed(max(process.wait(timeout=10), -1), bytes(out), bytes(err))
            except (TimeoutError, subprocess.TimeoutExpired) as error:
                raise timed_out(self.target.node, "a command", timeout) from error
            finally:
                _end(process)


def _converse(process: subprocess.Popen[bytes], feed: Feed, limit: int, deadline: float) -> tuple[bytearray, bytearray]:
    """Send and receive at the same time until the command has closed both its outputs.

    Returns early, with more than `limit` bytes of stdout, when there are more.
    """
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - all three are pipes
    out, err, pending = bytearray(), bytearray(), memoryview(b"")
    feeding = True
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ, (out, limit + 1))
        waiting.register(process.stderr, selectors.EVENT_READ, (err, MAX_STDERR))
        while waiting.get_map():
            if time.monotonic() > deadline:
                raise TimeoutError
            if feeding and not pending:
                more = feed(out, err)
                feeding = more is not None
                pending = memoryview(more or b"")
                if not feeding:
                    process.stdin.close()
            sent = _push(process.stdin, pending) if pending else 0
            if sent < 0:  # it reads no more; what it says about that is still to come
                feeding, pending = False, memoryview(b"")
            pending = pending[max(sent, 0) :]
            for key, _ in waiting.select(0.01 if pending or sent else POLL_SECONDS):
                piece = os.read(key.fd, 1 << 16)
                taken, most = key.data
                taken += piece[: most - len(taken)]
                if not piece:
                    waiting.unregister(key.fileobj)
            if len(out) > limit:
                break
    return out, err


def _push(stream: IO[bytes], pending: memoryview) -> int:
    """Bytes sent, 0 while the pipe is full, -1 when nobody reads any more."""
    try:
        return os.write(stream.fileno(), pending[: 1 << 15])
    except BlockingIOError:
        return 0
    except OSError:
        return -1


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a command; what became root ends by its own alarm, or when it writes to a closed pipe."""
    for stream in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):
            stream.close() if stream else None
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def sudo_asks(name: str) -> bool:
    """Whether sudo asks the user who runs gpustrap for a password on this machine."""
    found = _survey(name, PYTHON)
    return bool(not found.root and found.sudo_version and not found.sudo_free)


@lru_cache
def _survey(name: str, python: str) -> Survey:
    return survey(LocalShell(name), python)


@lru_cache
def find_local_access(endpoint: Endpoint, secrets: Secrets) -> Access:
    """How this user becomes root on this machine, proved by doing it once in this run.

    It is not kept in the site: the next run may be another user's.

    Args:
        endpoint: The node that this machine is.
        secrets: Has the sudo password, if one was given.

    Raises:
        GpustrapError: sudo-*.
    """
    python = endpoint.python or PYTHON
    found = _survey(endpoint.name, python)
    access = find_access(LocalShell(endpoint.name), found, secrets, python)
    if access.escalation in {Escalation.NOT_ALLOWED, Escalation.MISSING}:
        raise local_no_root(endpoint.name, found.user, found.sudo_words, sudo=bool(found.sudo_version))
    return access
