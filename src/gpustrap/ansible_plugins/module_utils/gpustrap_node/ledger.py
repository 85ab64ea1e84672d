"""The node's own copy of its ledger, the mark of an open run, and drift: the ledger against what is there.

All of it lies in /var/lib/gpustrap, 0700 of root. A ledger that cannot be trusted is unknown, never empty.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from typing import NamedTuple

from . import dpkg
from .host import Host, NodeError
from .observe import KINDS, observe_all

DIRECTORY = "/var/lib/gpustrap"
LEDGER = DIRECTORY + "/ledger.json"
MARK = DIRECTORY + "/open-run"
BEFORE = DIRECTORY + "/before.json"
RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")
VERSION = 1


def open_run(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Mark a run as begun, before its first change. Says which run was left open, if one was."""
    run = _run_id(args.get("run_id"))
    directory = writable_directory(host)
    before = _mark(host)
    _keep_before(host, directory, run)
    store(directory + "/open-run", run + "\n")
    return {"open_run": run, "left_open": before}


def _keep_before(host: Host, directory: str, run: str) -> None:
    """Before the first run of all, write down which packages are there, and on hold: what a removal never touches."""
    known = dpkg.packages(host)
    if known is None or any(trusted(host, path) is not None for path in (BEFORE, LEDGER)):
        return
    versions = {package.name: package.version for package in known.values() if package.present}
    holds = sorted({package.name for package in known.values() if package.hold})
    note = {"run": run, "packages": versions, "holds": holds}
    store(directory + "/before.json", json.dumps(note, sort_keys=True) + "\n")


class Before(NamedTuple):
    """What was there before the first run: packages with their versions, and those on hold."""

    packages: dict[str, str]
    holds: list[str]


def before(host: Host) -> Before | None:
    """The note from before the first run; None where nobody wrote it."""
    try:
        found = json.loads(trusted(host, BEFORE) or "{}")
    except ValueError as error:
        raise NodeError("ledger-corrupt", "%s is corrupt: %s" % (BEFORE, error)) from error
    packages, holds = (found.get(key) if isinstance(found, dict) else None for key in ("packages", "holds"))
    return Before(packages, holds) if isinstance(packages, dict) and isinstance(holds, list) else None


def forget(host: Host, names: set[tuple[str, str]]) -> None:
    """Take resources, by kind and name, out of the ledger: they are gone, or no longer ours."""
    ledger = read(host, {})["ledger"]
    if isinstance(ledger, dict):
        for part in ("resources", "left"):
            ledger[part] = [one for one in ledger.get(part, []) if (one["kind"], one["name"]) not in names]
        store(writable_directory(host) + "/ledger.json", json.dumps(ledger, sort_keys=True) + "\n")


def close_run(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Store the ledger of a run that ended, then clear its mark; another run's mark stays."""
    ledger = args.get("ledger")
    why = check(ledger)
    if why or not isinstance(ledger, dict):
        raise NodeError("bad-request", "args.ledger: %s" % (why or "not an object"))
    run = _run_id(ledger["run"]["id"])
    directory = writable_directory(host)
    store(directory + "/ledger.json", json.dumps(ledger, sort_keys=True) + "\n")
    if _mark(host) == run:
        os.unlink(directory + "/open-run")
        _sync(directory)
    return {"open_run": _mark(host)}


def release_run(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Take back the mark of a run that changed nothing here: what was left open before it is open again."""
    run, before = _run_id(args.get("run_id")), args.get("left_open")
    directory = writable_directory(host)
    if _mark(host) == run:
        if before is None:
            os.unlink(directory + "/open-run")
            _sync(directory)
        else:
            store(directory + "/open-run", _run_id(before) + "\n")
    return {"open_run": _mark(host)}


def read(host: Host, _args: dict[str, object]) -> dict[str, object]:
    """The ledger and the open run; ``unknown`` says why they cannot be trusted, or is empty."""
    try:
        ledger, mark = _ledger(host), _mark(host)
    except NodeError as error:
        return {"ledger": None, "open_run": None, "unknown": str(error)}
    return {"ledger": ledger, "open_run": mark, "unknown": ""}


def drift(host: Host, args: dict[str, object]) -> dict[str, object]:
    """Every resource of the ledger that is not as the last run left it, or cannot be read."""
    found = read(host, args)
    ledger = found["ledger"]
    answer: dict[str, object] = {
        "ledger_run": None,
        "lock_digest": "",
        "open_run": found["open_run"],
        "unknown": found["unknown"],
        "items": [],
        "checked": 0,
    }
    if not isinstance(ledger, dict):
        return answer
    resources = ledger["resources"]
    seen = observe_all(host, [(r["kind"], r["name"]) for r in resources])
    items = []
    for resource, state in zip(resources, seen):  # noqa: B905 - Python 3.8 has no strict
        unknown = state if isinstance(state, str) else ""
        if not unknown and state == resource["state"]:
            continue
        item = {key: resource[key] for key in ("kind", "name", "role")}
        items.append({**item, "wanted": resource["state"], "found": {} if unknown else state, "unknown": unknown})
    answer.update(
        ledger_run=ledger["run"], lock_digest=ledger.get("lock_digest", ""), items=items, checked=len(resources)
    )
    return answer


VERBS = {
    "ledger-open": open_run,
    "ledger-release": release_run,
    "ledger-close": close_run,
    "ledger-read": read,
    "drift": drift,
}


def check(ledger: object) -> str:
    """What is wrong with the shape of a ledger; empty if nothing is."""
    if not isinstance(ledger, dict) or ledger.get("version") != VERSION:
        return "not a ledger of version %d" % VERSION
    run, resources = ledger.get("run"), ledger.get("resources")
    if not isinstance(run, dict) or not isinstance(run.get("id"), str):
        return "it names no run"
    left = ledger.get("left", [])
    if not isinstance(resources, list) or not isinstance(left, list):
        return "it has no list of resources"
    for number, one in enumerate([*resources, *left]):
        texts = isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("kind", "name", "role"))
        if not texts or one["kind"] not in KINDS or not isinstance(one.get("state"), dict):
            return "resource %d is malformed" % number
    return ""


def _run_id(value: object) -> str:
    if isinstance(value, str) and RUN_ID.match(value):
        return value
    raise NodeError("bad-request", "a run id has letters, digits and .:_- only")


def _ledger(host: Host) -> dict[str, object] | None:
    text = trusted(host, LEDGER)
    if text is None:
        return None
    try:
        ledger = json.loads(text)
    except ValueError as error:
        raise NodeError("ledger-corrupt", "%s is corrupt: %s" % (LEDGER, error)) from error
    why = check(ledger)
    if why or not isinstance(ledger, dict):
        raise NodeError("ledger-corrupt", "%s is corrupt: %s" % (LEDGER, why))
    return ledger


def _mark(host: Host) -> str | None:
    text = trusted(host, MARK)
    return None if text is None else text.strip() if RUN_ID.match(text.strip()) else "unnamed"


def trusted(host: Host, path: str) -> str | None:
    """The text of a file of ours that is not there for somebody else to write; None if there is none."""
    if not _directory(host):
        return None
    where = host.path(DIRECTORY) + path[len(DIRECTORY) :]
    try:
        descriptor = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NodeError("ledger-unreadable", "%s: %s" % (path, error.strerror)) from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise NodeError("state-not-ours", "%s is not a file that only root can write" % path)
        return stream.read().decode("utf-8", "replace")


def _directory(host: Host) -> bool:
    """Whether our directory is there; refuses one that is a link, or that others can write."""
    try:
        status = os.lstat(host.path(DIRECTORY, follow=False))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise NodeError("ledger-unreadable", "%s: %s" % (DIRECTORY, error.strerror)) from error
    if stat.S_ISLNK(status.st_mode) or not stat.S_ISDIR(status.st_mode):
        raise NodeError("state-not-ours", "%s is not a directory; gpustrap does not follow links there" % DIRECTORY)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise NodeError("state-not-ours", "%s can be written by others than root" % DIRECTORY)
    return True


def writable_directory(host: Host) -> str:
    """Where our state is kept on the node, made if it is not there, for root alone.

    Raises:
        NodeError: It is not ours, or cannot be written.
    """
    where = host.path(DIRECTORY, follow=False)
    try:
        if not _directory(host):
            os.makedirs(os.path.dirname(where), exist_ok=True)
            os.mkdir(where, 0o700)
        os.chmod(where, 0o700)
    except OSError as error:
        raise NodeError("state-not-writable", "%s: %s" % (DIRECTORY, error.strerror)) from error
    return where


def store(path: str, text: str) -> None:
    """Write a whole file or none of it: beside its place, to the disk, then over the old one."""
    directory = os.path.dirname(path)
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=directory)  # 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, path)
        _sync(directory)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise NodeError("state-not-writable", "%s: %s" % (path, error.strerror)) from error


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
