"""Passwords: from a prompt, a file descriptor or the environment; never from argv, never left in os.environ.

The program takes them out of the environment before any verb runs, also one that needs none: whatever it starts (the
lab's containers, the inventory's reader, Ansible) inherits the environment.
"""

from __future__ import annotations

import getpass
import os
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode

if TYPE_CHECKING:
    from gpustrap.model.node import Secrets

SSH_VARIABLE = "GPUSTRAP_SSH_PASSWORD"
BECOME_VARIABLE = "GPUSTRAP_BECOME_PASSWORD"
_taken: dict[str, str] = {}


def take_environment() -> None:
    """Move the password variables out of `os.environ`, to where only `read_secrets` finds them."""
    for name in (SSH_VARIABLE, BECOME_VARIABLE):
        value = os.environ.pop(name, None)
        if value is not None:
            _taken[name] = value


def read_secrets(
    *,
    password_fd: int | None = None,
    become_password_fd: int | None = None,
    ask_password: bool = False,
    ask_become: bool = False,
) -> Secrets:
    """Collect the passwords of this run. The sudo password defaults to the SSH password.

    Raises:
        GpustrapError: A file descriptor cannot be read or is empty, or there is no terminal to ask on.
    """
    from gpustrap.model.node import Secrets

    take_environment()
    ssh_env, become_env = _taken.pop(SSH_VARIABLE, None), _taken.pop(BECOME_VARIABLE, None)
    ssh = _from_fd(password_fd, "--password-fd") if password_fd is not None else ssh_env
    if ask_password:
        ssh = _ask("SSH password: ", "--ask-password", "--password-fd")
    become = _from_fd(become_password_fd, "--become-password-fd") if become_password_fd is not None else become_env
    if ask_become:
        prompt = "sudo password (empty: the SSH password): "
        become = _ask(prompt, "--ask-become-pass", "--become-password-fd") or None
    return Secrets(ssh_password=ssh, become_password=become if become is not None else ssh)


def ask_sudo_password(secrets: Secrets) -> Secrets:
    """Ask for the sudo password of this machine.

    Raises:
        GpustrapError: There is no terminal to ask on.
    """
    return replace(secrets, become_password=_ask("sudo password: ", "--local", "--become-password-fd"))


def _ask(prompt: str, option: str, instead: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)  # it would show what is typed
            return getpass.getpass(prompt)
    except (getpass.GetPassWarning, EOFError) as error:
        raise GpustrapError(
            Problem(
                code="no-terminal",
                subject=f"option {option}",
                message="there is no terminal to ask on",
                exit_code=ExitCode.USAGE,
                remedy=f"{instead} 3 3< file",
            )
        ) from error


def _from_fd(descriptor: int, option: str) -> str:
    try:
        with os.fdopen(descriptor, encoding="utf-8", closefd=True) as stream:
            password = stream.readline().rstrip("\n")
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise GpustrapError(
            Problem(
                code="password-fd-unreadable",
                subject=f"option {option}",
                message=f"file descriptor {descriptor} cannot be read",
                exit_code=ExitCode.USAGE,
                evidence=str(error),
                remedy=f"open it in the shell, e.g. gpustrap … {option} 3 3< password-file",
            )
        ) from error
    if not password:  # a login with it would only count as a failed one
        raise GpustrapError(
            Problem(
                code="password-empty",
                subject=f"option {option}",
                message=f"descriptor {descriptor} is empty",
                exit_code=ExitCode.USAGE,
                remedy=f"put the password on its first line: gpustrap … {option} {descriptor} {descriptor}< file",
            )
        )
    return password
