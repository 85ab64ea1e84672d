"""Reads known_hosts as OpenSSH does, appends to it under a lock, and never rewrites a line it was not told to.

Format: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT". paramiko's own reader stops at ``@cert-authority`` lines and knows no
negated patterns, so it is not used.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path


class Standing(Enum):
    """What the known_hosts files say about a key that a machine has shown."""

    KNOWN = auto()
    UNKNOWN = auto()  # nothing is known about that machine
    CHANGED = auto()  # other keys are known for it, and not this one
    REVOKED = auto()
    CERTIFICATE = auto()  # only a certificate authority is known for it


@dataclass(frozen=True, slots=True)
class Entry:
    """One line.

    Attributes:
        marker: ``""``, ``@cert-authority`` or ``@revoked``.
        hosts: The host field as it stands: patterns separated by commas, or one hash.
        key_type: ``ssh-ed25519`` …
        blob: The public key.
        place: ``file:line``, for messages.
    """

    marker: str
    hosts: str
    key_type: str
    blob: bytes
    place: str


def fingerprint(blob: bytes) -> str:
    """A key's fingerprint as OpenSSH shows it: ``SHA256:`` and base64 without padding."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def matches(hosts: str, name: str) -> bool:
    """Whether the host field of a line names this machine (``host`` or ``[host]:port``, in lower case)."""
    if hosts.startswith("|"):
        return _hash_matches(hosts, name)
    found = False
    for pattern in hosts.lower().split(","):
        if pattern.startswith("!"):
            if _glob(pattern[1:]).fullmatch(name):
                return False  # a negated pattern wins, wherever it stands
        elif _glob(pattern).fullmatch(name):
            found = True
    return found


def read(file: Path) -> tuple[Entry, ...]:
    """The usable lines of a file; a file that cannot be read holds none."""
    try:
        stat = file.stat()
    except OSError:
        return ()
    return _read(file, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about a machine's key, and the lines that say so."""

    standing: Standing
    because: tuple[Entry, ...] = ()


def known_types(files: Iterable[Path], *names: str) -> tuple[str, ...]:
    """The key types known for a machine, in order: what to ask it for."""
    entries = (e for e in _entries(files) if not e.marker and any(matches(e.hosts, n) for n in names if n))
    return tuple(dict.fromkeys(e.key_type for e in entries))


def look_up(files: Iterable[Path], name: str, fallback_name: str, blob: bytes) -> Finding:
    """Judge the key a machine has shown.

    Args:
        files: The site's file first, then the user's.
        name: ``host`` or ``[host]:port``.
        fallback_name: The name without its port, or empty. It can only confirm a key, as in OpenSSH: what runs on
            another port may have another key.
        blob: The public key it has shown.
    """
    entries = list(_entries(files))
    own = [e for e in entries if matches(e.hosts, name)]
    near = [e for e in entries if fallback_name and matches(e.hosts, fallback_name)]
    if revoked := [e for e in own + near if e.marker == "@revoked" and e.blob == blob]:
        return Finding(Standing.REVOKED, tuple(revoked))
    plain = [e for e in own if not e.marker]
    if same := [e for e in plain + [e for e in near if not e.marker] if e.blob == blob]:
        return Finding(Standing.KNOWN, tuple(same))
    if plain:
        return Finding(Standing.CHANGED, tuple(plain))
    if authority := [e for e in own if e.marker == "@cert-authority"]:
        return Finding(Standing.CERTIFICATE, tuple(authority))
    return Finding(Standing.UNKNOWN)


def append(file: Path, name: str, key_type: str, blob: bytes) -> None:
    """Add a line, unless it is there already. Safe against other processes that do the same."""
    with _locked(file):
        if any(not e.marker and e.blob == blob and matches(e.hosts, name) for e in read(file)):
            return
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab") as stream:
            content = file.read_bytes()
            stream.write(b"\n" if content and not content.endswith(b"\n") else b"")
            stream.write(f"{name} {key_type} {base64.b64encode(blob).decode()}\n".encode())


def forget(file: Path, name: str) -> int:
    """Remove a machine's own lines from a file; the old file stays beside it as ``.old``.

    Lines with wildcards and markers speak of more than this machine and stay. A name among several is taken out of
    its line, the others stay.

    Returns:
        How many lines named it.
    """
    if not file.exists():
        return 0
    with _locked(file):
        content = file.read_text(encoding="utf-8", errors="surrogateescape")
        kept, removed = [], 0
        for line in content.splitlines(keepends=True):
            without = _without(line, name)
            removed += without != line
            kept.append(without)
        if removed:
            _replace(file.with_name(file.name + ".old"), content)
            _replace(file, "".join(kept))
        return removed


def _without(line: str, name: str) -> str:
    hosts, _, rest = line.partition(" ")
    if hosts.startswith(("#", "@")) or not rest:
        return line
    if hosts.startswith("|"):
        return "" if _hash_matches(hosts, name) else line
    left = [h for h in hosts.split(",") if h.lower() != name]
    if len(left) == len(hosts.split(",")):
        return line
    return f"{','.join(left)} {rest}" if left else ""


def _entries(files: Iterable[Path]) -> Iterator[Entry]:
    for file in files:
        yield from read(file)


@lru_cache(maxsize=32)
def _read(file: Path, *_version: int) -> tuple[Entry, ...]:
    try:
        lines: Sequence[bytes] = file.read_bytes().split(b"\n")
    except OSError:
        return ()
    numbered = ((number, line.decode("utf-8", "replace")) for number, line in enumerate(lines, 1))
    return tuple(entry for number, line in numbered if (entry := _parse(line, f"{file}:{number}")))


def _parse(line: str, place: str) -> Entry | None:
    """One line, or None for a comment and for what OpenSSH would skip as well."""
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if marker not in {"", "@cert-authority", "@revoked"} or len(words) < 3 or words[0].startswith("#"):
        return None
    try:
        blob = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return Entry(marker, words[0], words[1], blob, place)


@lru_cache(maxsize=4096)
def _glob(pattern: str) -> re.Pattern[str]:
    """``*`` and ``?`` only: brackets are part of ``[host]:port``."""
    return re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), re.DOTALL)


def _hash_matches(hosts: str, name: str) -> bool:
    """``|1|salt|HMAC-SHA1(salt, name)``; any other scheme matches nothing."""
    try:
        _, scheme, salt, digest = hosts.split("|")
        wanted = base64.b64decode(digest, validate=True)
        mac = hmac.new(base64.b64decode(salt, validate=True), name.encode(), hashlib.sha1).digest()
    except (ValueError, binascii.Error):
        return False
    return scheme == "1" and hmac.compare_digest(mac, wanted)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file. It is a file of its own, because the other one may be replaced."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(file: Path, content: str) -> None:
    temporary = file.with_name(f".{file.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)
