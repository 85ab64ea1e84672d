"""One SSH connection to a node: verified, logged in, and able to run a command without deadlock or end."""

from __future__ import annotations

import select
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import paramiko

from gpustrap.model.node import Endpoint, Secrets
from gpustrap.ssh.config import Target, resolve
from gpustrap.ssh.opening import Opener
from gpustrap.ssh.problems import connection_lost, output_too_large, timed_out
from gpustrap.ssh.shell import MAX_STDERR, MIB, Completed, Feed, send_once
from gpustrap.ssh.trust import NOTHING_ELSE, HostKey, Trust

KEEPALIVE_SECONDS = 15


class Session:
    """A logged-in connection. Use as a context manager; `connect` makes it.

    Attributes:
        target: What it is connected to.
        host_key: The key the node has shown.
        login: What it took: ``site key``, ``password`` …
    """

    def __init__(
        self, target: Target, transport: paramiko.Transport, host_key: HostKey, login: str, closing: ExitStack
    ) -> None:
        self.target = target
        self.host_key = host_key
        self.login = login
        self._transport = transport
        self._closing = closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and those it goes through."""
        self._closing.close()

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
        """Run a command in the login shell; see `Shell`.

        Raises:
            GpustrapError: timeout, output-too-large, connection-lost.
        """
        node = self.target.node
        expired = threading.Event()

        def give_up() -> None:
            expired.set()
            self._transport.close()

        watchdog = threading.Timer(timeout, give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            done = self._execute(command, feed or send_once(stdin), limit, pty)
        except (paramiko.SSHException, OSError, EOFError) as error:
            if expired.is_set():
                raise timed_out(node, "a command", timeout) from error
            raise connection_lost(node, "a command was running", str(error)) from error
        finally:
            watchdog.cancel()
        if expired.is_set():
            raise timed_out(node, "a command", timeout)
        if done.rc < 0 and not self._transport.is_active():
            raise connection_lost(node, "a command was running", done.words)
        return done

    def _execute(self, command: str, feed: Feed, limit: int, pty: bool) -> Completed:
        with self._transport.open_session() as channel:
            if pty:
                channel.get_pty(term="dumb")
            channel.exec_command(command)
            out, err = _converse(channel, feed, limit)
            if len(out) > limit:
                raise output_too_large(self.target.node, limit, bytes(out))
            return Completed(channel.recv_exit_status(), bytes(out), bytes(err))


def connect(
    endpoint: Endpoint,
    *,
    known_hosts: Path,
    identity: Path | None,
    secrets: Secrets,
    timeout: float = 15,
    trust: Trust = NOTHING_ELSE,
) -> Session:
    """Connect to a node, verify its host key, and log in.

    Args:
        endpoint: Where it is, as the inventory says; ``ssh -G`` fills in the rest.
        known_hosts: The site's known_hosts.
        identity: The site's private key, if it has one yet.
        secrets: A password, if one was given.
        timeout: Seconds for each step: TCP, negotiation, login.
        trust: What makes an unknown or changed host key acceptable; only enroll gives any.

    Raises:
        GpustrapError: unreachable, timeout, host-key-*, auth-failed, ssh-config-broken.
    """
    target = resolve(endpoint)
    with ExitStack() as closing:
        opener = Opener(known_hosts, identity, timeout, closing)
        transport, host_key = opener.open(target, trust)
        login = opener.log_in(transport, target, secrets)
        transport.set_keepalive(KEEPALIVE_SECONDS)
        return Session(target, transport, host_key, login, closing.pop_all())
    raise AssertionError("ExitStack lets every exception through")


def _converse(channel: paramiko.Channel, feed: Feed, limit: int) -> tuple[bytearray, bytearray]:
    """Send and receive at the same time until the command has closed both its outputs.

    Returns early, with more than `limit` bytes of stdout, when there are more.
    """
    out, err, pending = bytearray(), bytearray(), memoryview(b"")
    feeding = True
    channel.settimeout(0)
    readable = select.poll()  # poll, not select: a file descriptor may be above 1024
    readable.register(channel.fileno(), select.POLLIN)
    while True:
        received = _drain(channel, out, err)
        if len(out) > limit:
            return out, err
        if feeding and not pending:
            more = feed(out, err)
            feeding = more is not None
            pending = memoryview(more or b"")
            if not feeding:
                channel.shutdown_write()
        sent = _push(channel, pending)
        if sent < 0:  # it reads no more; what it says about that is still to come
            pending, feeding = memoryview(b""), False
        pending = pending[max(sent, 0) :]
        if channel.eof_received or channel.closed:
            _drain(channel, out, err)
            return out, err
        if not received and sent <= 0:
            readable.poll(20 if pending else 200)


def _drain(channel: paramiko.Channel, out: bytearray, err: bytearray) -> bool:
    moved = False
    while channel.recv_ready():
        out += channel.recv(1 << 16)
        moved = True
    while channel.recv_stderr_ready():
        piece = channel.recv_stderr(1 << 16)
        err += piece[: MAX_STDERR - len(err)]
        moved = True
    return moved


def _push(channel: paramiko.Channel, pending: memoryview) -> int:
    """Bytes sent, 0 while the node's window is full, -1 when it takes no more."""
    if not pending:
        return 0
    try:
        return channel.send(bytes(pending[: 1 << 15])) or -1
    except TimeoutError:
        return 0
    except OSError:
        return -1
