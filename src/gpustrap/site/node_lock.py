"""One apply at a time on a node: a lock on this machine that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import json
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from gpustrap.model.site import Site

FILE = "lock"
OTHER_FILES = 512  # connections, logs, Ansible


@contextmanager
def hold_nodes(site: Site, names: Sequence[str], run_id: str) -> Iterator[dict[str, str]]:
    """Take the locks of nodes for the duration of a block, without waiting for any.

    The file stays; what counts is the lock on it, which the kernel takes back even after a crash.

    Args:
        site: The site.
        names: The nodes.
        run_id: Who takes them, for others to read.

    Yields:
        The nodes that another apply holds, and what it said of itself.
    """
    busy: dict[str, str] = {}
    _make_room(len(names))
    with ExitStack() as held:
        for name in names:
            path = site.node(name) / FILE
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Not inherited by Ansible and ssh, so that nothing which outlives us can keep the lock.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            held.callback(os.close, file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy[name] = _holder(os.read(file, 1000))
            else:
                os.ftruncate(file, 0)
                os.write(file, _mark(run_id))
        yield busy


def _make_room(locks: int) -> None:
    """A rack of a thousand nodes needs more open files than the usual soft limit of 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = locks + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _mark(run_id: str) -> bytes:
    return json.dumps({"pid": os.getpid(), "run": run_id, "since": f"{datetime.now(UTC):%H:%M} UTC"}).encode() + b"\n"


def _holder(text: bytes) -> str:
    """Who holds a lock, in words; empty in the moment before it has written that."""
    try:
        mark = json.loads(text)
        return f"pid {mark['pid']}, run {mark['run']}, since {mark['since']}"
    except (ValueError, KeyError, TypeError):
        return ""
