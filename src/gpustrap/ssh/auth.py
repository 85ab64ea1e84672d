"""Logging in: the site's key, the keys of the SSH configuration, the agent, then a password."""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Iterator
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import UnknownKeyType

from gpustrap.errors import GpustrapError
from gpustrap.model.node import Secrets
from gpustrap.ssh.config import Target
from gpustrap.ssh.problems import refuse

# sshd drops the connection at its sixth failure (MaxAuthTries), and a password must still fit in.
MAX_KEYS = 4
SITE_KEY = "site key"
PASSWORD = "password"  # noqa: S105 - the name of a way to log in


def log_in(transport: paramiko.Transport, target: Target, identity: Path | None, secrets: Secrets) -> str:
    """Authenticate with the first thing that the node takes.

    Returns:
        What it took: ``site key``, ``key PATH``, ``agent key COMMENT`` or ``password``.

    Raises:
        GpustrapError: It took nothing.
    """
    notes: list[str] = []
    try:
        for label, key in itertools.islice(_keys(target, identity, notes), MAX_KEYS):
            if _try_key(transport, target.user, label, key, notes):
                return label
            if not transport.is_active():
                break
        if secrets.ssh_password is not None and _try_password(transport, target.user, secrets.ssh_password, notes):
            return PASSWORD
    except _KeysNotAllowedError:
        notes.append("the node takes no keys")
        if secrets.ssh_password is not None and _try_password(transport, target.user, secrets.ssh_password, notes):
            return PASSWORD
    raise _auth_failed(target, secrets, [*notes, *target.hints])


class _KeysNotAllowedError(Exception):
    pass


def _try_key(transport: paramiko.Transport, user: str, label: str, key: paramiko.PKey, notes: list[str]) -> bool:
    try:
        remaining = transport.auth_publickey(user, key)
    except paramiko.BadAuthenticationType as error:
        raise _KeysNotAllowedError from error
    except paramiko.AuthenticationException as error:
        notes.append(f"{label}: {_words(error)}")
        return False
    except paramiko.SSHException as error:  # e.g. the agent cannot sign with a key on hardware
        notes.append(f"{label}: {error}")
        return False
    if remaining:
        notes.append(f"{label}: taken, but the node also asks for {' or '.join(remaining)}")
    return not remaining


def _try_password(transport: paramiko.Transport, user: str, password: str, notes: list[str]) -> bool:
    """Once, with whichever of the two methods the node offers: a second try could lock the account."""

    def answer(_title: str, _instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        return [password for _ in prompts]

    if not transport.is_active():
        return False
    try:
        try:
            remaining = transport.auth_password(user, password, fallback=False)
        except paramiko.BadAuthenticationType as error:
            if "keyboard-interactive" not in error.allowed_types:
                notes.append("password: the node takes no passwords")
                return False
            remaining = transport.auth_interactive(user, answer)
    except paramiko.AuthenticationException as error:
        notes.append(f"password: {_words(error)}")
        return False
    if remaining:
        notes.append(f"password: taken, but the node also asks for {' or '.join(remaining)}")
    return not remaining


def _words(error: Exception) -> str:
    return "not accepted" if str(error) == "Authentication failed." else str(error)


def _keys(target: Target, identity: Path | None, notes: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    files = [(SITE_KEY, identity)] if identity else []
    files += [(f"key {path}", path) for path in target.identities]
    for label, path in files:
        if path.exists() and (key := _load(path, label, notes)):
            yield label, key
    if target.agent:
        yield from _agent_keys(target, notes)


def _load(path: Path, label: str, notes: list[str]) -> paramiko.PKey | None:
    try:
        return paramiko.PKey.from_path(path)
    except (paramiko.PasswordRequiredException, TypeError):
        notes.append(f"{label}: has a passphrase; add it to your agent: ssh-add {path}")
    except (UnknownKeyType, UnsupportedAlgorithm):
        notes.append(f"{label}: a key on hardware (FIDO) or of a kind that gpustrap cannot use")
    except (paramiko.SSHException, ValueError, OSError) as error:
        notes.append(f"{label}: cannot be read: {error}")
    return None


def _agent_keys(target: Target, notes: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    try:
        agent = paramiko.Agent()
    except paramiko.SSHException as error:
        notes.append(f"agent: {error}")
        return
    try:
        allowed = {_public_blob(path) for path in target.identities} if target.identities_only else None
        for key in agent.get_keys():
            if key.get_name().startswith("sk-"):
                notes.append(f"agent key {key.comment}: a key on hardware (FIDO), which gpustrap cannot use")
            elif allowed is None or key.asbytes() in allowed:
                yield f"agent key {key.comment}", key
    finally:
        agent.close()


def _public_blob(private: Path) -> bytes:
    try:
        return base64.b64decode(private.with_name(private.name + ".pub").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError, ValueError, binascii.Error):
        return b""


def _auth_failed(target: Target, secrets: Secrets, notes: list[str]) -> GpustrapError:
    if target.is_jump:
        remedy = f"jump hosts are entered with a key only; check: ssh -p {target.port} {target.user}@{target.host}"
    elif secrets.ssh_password is not None:
        remedy = f"check the login name (ansible_user) and the password, then gpustrap enroll -k {target.node}"
    else:
        remedy = f"gpustrap enroll -k {target.node} asks for the password and installs the site's key"
    return refuse(
        "auth-failed",
        target.node,
        f"{target.where} did not let us in",
        evidence="\n".join(notes) or "there was no key and no password to try",
        remedy=remedy,
    )
