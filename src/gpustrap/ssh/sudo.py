"""Becoming root through sudo: the command line, and what sudo's words mean."""

from __future__ import annotations

import re
import secrets as random
import shlex
from dataclasses import dataclass, field
from enum import Enum, auto

from gpustrap.errors import GpustrapError
from gpustrap.model.node import Access, Escalation
from gpustrap.ssh import problems

# sudo asks on /dev/tty's existence, not on stdin: this gives it a terminal of its own and leaves our pipes alone,
# so that neither echo nor line length limits touch what is sent. Python runs it before sudo, as the login.
_TERMINAL = (
    "import fcntl,os,sys,termios;m,s=os.openpty();p=os.fork();"
    "p or (os.setsid(),fcntl.ioctl(s,termios.TIOCSCTTY,0),os.execvp(sys.argv[1],sys.argv[1:]));"
    "sys.exit(os.WEXITSTATUS(os.waitpid(p,0)[1]))"
)


END_OF_FILE = b"\x04"  # not Ctrl-C: sudo loses a signal that comes just before it reads


class Refusal(Enum):
    """Why sudo did not run the command."""

    PASSWORD_NEEDED = auto()
    PASSWORD_WRONG = auto()
    NOT_ALLOWED = auto()
    REQUIRETTY = auto()
    MISSING = auto()


# In the C locale. sudo 1.8-1.9 (sudoers plugin, sudo.c) and sudo-rs, which says things in its own way.
_WORDS: tuple[tuple[Refusal, str], ...] = (
    (Refusal.REQUIRETTY, r"must have a tty to run sudo"),
    (
        Refusal.NOT_ALLOWED,
        r"not in the sudoers file|not allowed to (?:execute|run)|may not run sudo|I'm afraid I can't do",
    ),
    (Refusal.PASSWORD_WRONG, r"incorrect (?:password|authentication) attempt|Sorry, try again|Authentication failed"),
    (Refusal.PASSWORD_NEEDED, r"password is required|interactive authentication is required|no password was provided"),
    (Refusal.PASSWORD_NEEDED, r"terminal is required to (?:read the password|authenticate)"),
    (Refusal.MISSING, r"sudo(?:\.ws)?'?: (?:command )?not found|sudo(?:\.ws)?'?: No such file|Unknown command.*sudo"),
)


def why(stderr: str) -> Refusal | None:
    """Sudo's reason for not running a command, or None if it ran it (or ended in a way that is not known)."""
    return next((refusal for refusal, pattern in _WORDS if re.search(pattern, stderr)), None)


def command(argv: list[str], access: Access, *, prompt: str = "") -> str:
    """The command line, for any login shell, that runs `argv` as root the way enroll found out.

    Args:
        argv: What to run.
        access: How this login becomes root.
        prompt: What sudo is to print when it reads the password from stdin.
    """
    if access.escalation is Escalation.ROOT:
        return shlex.join(argv)
    flags = ["-k", "-S", "-p", prompt] if access.escalation is Escalation.PASSWORD else ["-n"]
    words = ["env", "LC_ALL=C", access.become_exe, *flags, "--", *argv]
    if access.requiretty:
        words = [access.python, "-IS", "-c", _TERMINAL, *words]
    return shlex.join(words)


@dataclass
class Dialogue:
    """A feed for `Shell.run` that gives sudo the password once, and the rest only when the command has begun.

    If sudo asks again the password was wrong: stdin is closed at once, so that no account is locked by further
    tries and nothing of what follows is ever taken for a password.

    Attributes:
        password: The sudo password.
        ready: What the command prints on stdout first.
        then: What the command is sent when it has begun.
        terminal: The command has a terminal, so stdin stays open, and the password waits until it is asked for: by
            then echo is off.
        prompt: What sudo prints when it asks.
        wrong: The password was refused.
    """

    password: str = field(repr=False)
    ready: bytes
    then: bytes = b""
    terminal: bool = False
    prompt: str = field(default_factory=lambda: f"gpustrap-{random.token_hex(8)}:")
    wrong: bool = False
    _given: bool = False
    _begun: bool = False

    def __call__(self, out: bytearray, err: bytearray) -> bytes | None:
        """Decide what to send."""
        if not self._begun and self.ready in out:
            self._begun = True
            return self.then
        if self._begun:
            return b"" if self.terminal else None
        asked = (out if self.terminal else err).count(self.prompt.encode())
        if not self._given and (asked or not self.terminal):
            self._given = True
            return self.password.encode() + b"\n"
        if asked < 2 or self.wrong:
            return b""
        self.wrong = True
        return END_OF_FILE if self.terminal else None


def refused(node: str, user: str, stderr: str, *, wrong_password: bool = False) -> GpustrapError | None:
    """The problem behind sudo's words, if they speak of one."""
    reason = Refusal.PASSWORD_WRONG if wrong_password else why(stderr)
    if reason is None:
        return None
    evidence = "\n".join(line for line in stderr.splitlines() if "gpustrap-" not in line)
    if reason is Refusal.PASSWORD_WRONG:
        return problems.sudo_password_wrong(node, evidence)
    if reason is Refusal.PASSWORD_NEEDED:
        return problems.sudo_password_missing(node, evidence)
    if reason is Refusal.MISSING:
        return problems.sudo_missing(node, user)
    if reason is Refusal.NOT_ALLOWED:
        return problems.no_root(node, user, evidence)
    return problems.refuse(
        "sudo-requiretty",
        node,
        "sudo insists on a terminal, and the site does not know that yet",
        evidence=evidence,
        remedy=f"gpustrap enroll {node}",
    )
