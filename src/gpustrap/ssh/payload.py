"""Runs a Python program on a node in one round trip, as root where the login may, leaving nothing behind.

The node's python gets a one-liner that throws away its stdin up to a random sentinel. Whatever came before it, the
sudo password above all, can therefore never become source text. Behind the sentinel come the loader
(`node_loader`), the code and the request; the answer is looked for behind a random marker, so that whatever the
login's start-up files print does no harm.
"""

from __future__ import annotations

import json
import re
import secrets as random
import zlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

from gpustrap.errors import GpustrapError
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Access, Escalation, Secrets
from gpustrap.ssh import problems, sudo
from gpustrap.ssh.shell import MIB, Completed, Shell

# One line, without single quotes, backslashes and exclamation marks: every login shell takes it as it is.
_ONE_LINER = (
    'import sys;stream=sys.stdin.buffer;print("{ready}",flush=True);'
    'any(line.strip()==b"{sentinel}" for line in iter(stream.readline,b""));'
    "exec(stream.read(int(stream.readline() or 0)))"
)
_NO_PYTHON = re.compile(r"python[\d.]*'?: (?:command )?not found|python[\d.]*'?: No such file|Unknown command.*python")


def bundle(*packages: Path) -> bytes:
    """Pack directories of standard-library-only Python for `ask`; each is importable by its directory's name.

    The same files give the same bytes.
    """
    return zlib.compress(json.dumps({k: v for p in packages for k, v in _modules(p).items()}, sort_keys=True).encode())


def _modules(package: Path) -> dict[str, tuple[bool, str]]:
    modules = {}
    for file in sorted(package.rglob("*.py")):
        parts = [package.name, *file.relative_to(package).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        modules[".".join(parts[:-1] if is_package else parts)] = (is_package, file.read_text(encoding="utf-8"))
    return modules


def ask(
    session: Shell,
    *,
    access: Access,
    secrets: Secrets,
    code: bytes,
    entry: str,
    request: dict[str, Any],
    timeout: float = 120,
    limit: int = 8 * MIB,
) -> dict[str, Any]:
    """Call ``main(request)`` of the module `entry` on the node, as root where the login may become root.

    Args:
        session: A connection to it.
        access: How enroll found that it becomes root, and its python.
        secrets: Has the sudo password, if one is needed.
        code: What `bundle` made.
        entry: ``package.module``, from `code`.
        request: Anything JSON takes.
        timeout: Seconds; the program on the node is ended as well.
        limit: Most bytes of the answer.

    Returns:
        What the entry returned: a JSON object, not yet validated any further.

    Raises:
        GpustrapError: sudo-*, python-missing, answer-unreadable, and what `Shell.run` raises.
    """
    node = session.target.node
    sentinel, ready, marker = (random.token_hex(16) for _ in range(3))
    body = json.dumps(request).encode()
    header = {"code": len(code), "request": len(body), "entry": entry, "marker": marker, "seconds": int(timeout) + 1}
    stream = _loader() + json.dumps(header).encode() + b"\n" + code + body
    stdin = f"{sentinel}\n{len(_loader())}\n".encode() + stream
    python = [access.python, "-IS", "-c", _ONE_LINER.format(ready=ready, sentinel=sentinel)]
    if access.escalation is not Escalation.PASSWORD:
        how = Access(Escalation.ROOT) if _stays_the_login(access) else access
        done = session.run(sudo.command(python, how), stdin=stdin, timeout=timeout, limit=limit)
    else:
        if secrets.become_password is None:
            raise problems.sudo_password_missing(node)
        dialogue = sudo.Dialogue(secrets.become_password, ready.encode(), stdin)
        line = sudo.command(python, access, prompt=dialogue.prompt)
        done = session.run(line, timeout=timeout, limit=limit, feed=dialogue)
        if dialogue.wrong:
            raise problems.sudo_password_wrong(node)
    answer = _find(done.stdout, marker)
    if answer is None:
        _explain(session, access, done)
    return _parse(node, answer)


def _stays_the_login(access: Access) -> bool:
    return access.escalation in {Escalation.NOT_ALLOWED, Escalation.MISSING}


@cache
def _loader() -> bytes:
    return files("gpustrap.ssh").joinpath("node_loader.py").read_bytes()


def _find(stdout: bytes, marker: str) -> bytes | None:
    """The body behind the marker, if all of it is there."""
    match = re.search(rb"\n" + marker.encode() + rb" (\d{1,12})\n", stdout)
    if not match:
        return None
    body = stdout[match.end() : match.end() + int(match[1])]
    return body if len(body) == int(match[1]) else None


def _parse(node: str, answer: bytes) -> dict[str, Any]:
    """Hostile input: any text at all may be here."""
    try:
        value = json.loads(answer, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _unreadable(node, f"it is not JSON: {error}", answer) from error
    if not isinstance(value, dict):
        raise _unreadable(node, "it is not a JSON object", answer)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _unreadable(node: str, message: str, evidence: bytes) -> GpustrapError:
    return problems.refuse(
        "answer-unreadable",
        node,
        f"its answer cannot be used: {message}",
        evidence=evidence[:500].decode("utf-8", "replace"),
        remedy=f"run it again; if it stays, look at what this prints: ssh {node} /usr/bin/python3 -c 0",
        exit_code=ExitCode.STATE_UNKNOWN,
    )


def _explain(session: Shell, access: Access, done: Completed) -> NoReturn:
    """No answer came: say why."""
    node, words = session.target.node, done.stderr.decode("utf-8", "replace")
    if _NO_PYTHON.search(words):
        raise problems.python_missing(node, words)
    if access.escalation is not Escalation.ROOT and (problem := sudo.refused(node, session.target.user, words)):
        raise problem
    raise _unreadable(node, f"the program on it ended with {done.rc} and no answer", words.encode() or done.stdout)
