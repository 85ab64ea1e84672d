"""Opening a connection: TCP, a ProxyCommand or jump hosts, then the negotiation and the host key."""

from __future__ import annotations

import logging
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import paramiko

from gpustrap.model.node import Secrets
from gpustrap.ssh import auth
from gpustrap.ssh.config import Target
from gpustrap.ssh.problems import connection_lost, timed_out, unreachable
from gpustrap.ssh.trust import HostKey, Trust, judge, preferred

# paramiko logs tracebacks of every refused connection; what matters of them becomes a Problem.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Opener:
    """What all machines on the way to one node have in common.

    Attributes:
        known_hosts: The site's known_hosts.
        identity: The site's private key, if it has one yet.
        timeout: Seconds for each step.
        closing: Gets what must be closed at the end, in the order of opening.
    """

    known_hosts: Path
    identity: Path | None
    timeout: float
    closing: ExitStack

    def open(self, target: Target, trust: Trust) -> tuple[paramiko.Transport, HostKey]:
        """Everything up to a host key that was taken; jump hosts first, each verified and logged in to."""
        proxy_words: Callable[[], str] = str
        stream: socket.socket | paramiko.Channel
        if target.jump:
            stream = self._through(target.jump, target, trust)
        elif target.proxy_command:
            stream, proxy_words = self._proxy(target.proxy_command)
        else:
            stream = self._tcp(target)
        transport = paramiko.Transport(stream)
        self.closing.callback(transport.close)
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = self.timeout
        security = transport.get_security_options()
        # curve25519 before the post-quantum exchange, as in ansible.cfg: it costs a tenth of the CPU time.
        security.kex = tuple(sorted(security.kex, key=lambda name: "curve25519-sha256" not in name))
        security.key_types = preferred(target, self.known_hosts, security.key_types)
        try:
            transport.start_client(timeout=self.timeout)
            key = transport.get_remote_server_key()
        except (paramiko.SSHException, OSError, EOFError) as error:
            if transport.is_active():  # start_client returns silently when its time is up
                raise timed_out(target.node, f"the SSH negotiation with {target.where}", self.timeout) from error
            raise unreachable(target.node, target.where, f"{error}\n{proxy_words()}") from error
        return transport, judge(target, key.get_name(), key.asbytes(), self.known_hosts, trust)

    def log_in(self, transport: paramiko.Transport, target: Target, secrets: Secrets) -> str:
        """Authenticate; returns what the machine took."""
        try:
            return auth.log_in(transport, target, self.identity, secrets)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise connection_lost(target.node, f"logging in at {target.where}", str(error)) from error

    def _tcp(self, target: Target) -> socket.socket:
        try:
            stream = socket.create_connection((target.host, target.port), timeout=self.timeout)
        except TimeoutError as error:
            raise timed_out(target.node, f"connecting to {target.where}", self.timeout) from error
        except (OSError, UnicodeError) as error:
            raise unreachable(target.node, target.where, str(error)) from error
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def _through(self, jump: Target, target: Target, trust: Trust) -> paramiko.Channel:
        via, _ = self.open(jump, trust.for_jump_host())
        self.log_in(via, jump, Secrets())  # the node's password is none of a jump host's business
        address = (target.host, target.port)
        try:
            return via.open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=self.timeout)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise unreachable(target.node, f"{target.where} through {jump.where}", str(error)) from error

    def _proxy(self, command: str) -> tuple[socket.socket, Callable[[], str]]:
        """A ProxyCommand on one end of a socket pair, run by a shell as OpenSSH does; and how to read its stderr."""
        ours, theirs = socket.socketpair()
        log = self.closing.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the connection
        with theirs:
            end = theirs.fileno()
            process = subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], stdin=end, stdout=end, stderr=log)
        self.closing.callback(_end, process, ours)

        def words() -> str:
            log.seek(0)
            return log.read(4096).decode("utf-8", "replace")

        return ours, words


def _end(process: subprocess.Popen[bytes], stream: socket.socket) -> None:
    stream.close()
    process.terminate()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
