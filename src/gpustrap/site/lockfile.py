"""Reads, writes and compares ``gpustrap.lock.yml``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import ValidationError

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.site import Site
from gpustrap.site.files import write_atomically

VERSION = 1
HEADER = """\
# Written by `gpustrap plan`, read by `gpustrap apply`. Commit it; do not edit it: change the inventory and plan again.
"""


def read_lock(site: Site) -> Lock | None:
    """The site's lock; None where there is none yet.

    Raises:
        GpustrapError: It is broken, or a newer gpustrap wrote it.
    """
    try:
        data = yaml.safe_load(site.lock.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(site, "cannot be read", str(error)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise _broken(site, "is no YAML", str(error), line=mark.line + 1 if mark else None) from error
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise GpustrapError(
            Problem(
                code="lock-newer",
                subject=f"lock {site.lock}",
                message=f"a newer gpustrap wrote it: version {version}, this one reads {VERSION}",
                exit_code=ExitCode.USAGE,
                remedy="update gpustrap",
            )
        )
    try:
        return Lock.model_validate(data)
    except ValidationError as error:
        words = "\n".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()[:5])
        raise _broken(site, "is no lock", words) from error


def _broken(site: Site, what: str, evidence: str, *, line: int | None = None) -> GpustrapError:
    return GpustrapError(
        Problem(
            code="lock-broken",
            subject=f"lock {site.lock}" + (f":{line}" if line else ""),
            message=f"it {what}",
            exit_code=ExitCode.USAGE,
            evidence=evidence,
            remedy=f"git checkout {site.lock.name}, or remove it and run gpustrap plan",
        )
    )


def dump_lock(lock: Lock) -> str:
    """The text of a lock: nodes sorted, no dates, so that the same plan is the same file."""
    data = lock.model_dump(mode="json", exclude_defaults=False)
    data["nodes"] = {name: _tidy(data["nodes"][name]) for name in sorted(data["nodes"])}
    body = yaml.safe_dump(data, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120)
    return HEADER + str(body)


def _tidy(node: dict[str, Any]) -> dict[str, Any]:
    """Leave out what says nothing: a choice that is no stand-in, an empty checksum, roles that are not pending."""
    choices = [_said(choice, simulated=False, pending=False) for choice in node["choices"]]
    repositories = [_said(row, fingerprints=[], sha256="", snapshot="") for row in node["repositories"]]
    return _said(node | {"choices": choices, "repositories": repositories}, pending={}, repositories=[])


def _said(row: dict[str, Any], **silent: Any) -> dict[str, Any]:  # noqa: ANN401 - of every kind
    return {key: value for key, value in row.items() if key not in silent or value != silent[key]}


def write_lock(site: Site, lock: Lock) -> None:
    """Write the lock in one step; it is meant to be committed and read by others.

    Raises:
        GpustrapError: It cannot be written; the old one is untouched.
    """
    try:
        write_atomically(site.lock, dump_lock(lock), mode=0o644)
    except OSError as error:
        raise GpustrapError(
            Problem(
                code="lock-not-written",
                subject=f"lock {site.lock}",
                message="it cannot be written; the old one is as it was",
                exit_code=ExitCode.REFUSED,
                evidence=str(error),
                remedy="make room or give yourself the right to write there, then gpustrap plan",
            )
        ) from error


def diff_locks(old: Lock | None, new: Lock) -> tuple[str, ...]:
    """What changes from one lock to the next, a line for a person each; none where nothing does."""
    before = old.nodes if old else {}
    lines = []
    for name in sorted(before.keys() | new.nodes.keys()):
        if name not in before:
            lines.append(f"+ {name}: new, {new.nodes[name].os}")
        elif name not in new.nodes:
            lines.append(f"- {name}: no longer in the inventory")
        else:
            lines += [f"~ {name}: {line}" for line in _node_changes(before[name], new.nodes[name])]
    return tuple(lines)


def _node_changes(old: NodeLock, new: NodeLock) -> Iterator[str]:
    if old.os != new.os:
        yield f"os {old.os} -> {new.os}"
    elif old.system_digest != new.system_digest:
        yield "its hardware changed"
    if old.request_digest != new.request_digest and _gets(old) == _gets(new):
        yield "its variables changed, what it gets does not"
    before, after = old.roles | old.pending, new.roles | new.pending
    for role in dict.fromkeys((*before, *after)):
        if role not in after:
            yield f"{role} is no longer {_kept(old, role)}" + ("; it stays on the node" if role in old.roles else "")
        elif role not in before:
            yield f"{role} is {_kept(new, role)} from now on"
        else:
            if _kept(old, role) != _kept(new, role):
                yield f"{role} is {_kept(new, role)} from now on"
            yield from _variable_changes(before[role], after[role])
    yield from _repository_changes(old, new)


def _gets(node: NodeLock) -> tuple[object, ...]:
    return node.roles, node.pending, node.repositories


def _kept(node: NodeLock, role: str) -> str:
    return "managed" if role in node.roles else "planned"


def _repository_changes(old: NodeLock, new: NodeLock) -> Iterator[str]:
    before, after = ({r.name: r.model_dump(mode="json") for r in node.repositories} for node in (old, new))
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"repository {name}: no longer used"
        elif name not in before:
            yield f"repository {name}: new, {after[name]['uri']}"
        else:
            yield from (f"repository {name}: {line}" for line in _variable_changes(before[name], after[name]))


def _variable_changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if isinstance(before or [], list) and isinstance(after or [], list):
            yield f"{name}: {_list_changes(before or [], after or [])}"
        elif isinstance(before, dict) and isinstance(after, dict):
            yield from (f"{name}.{line}" for line in _variable_changes(before, after))
        else:
            yield f"{name} {_short(before)} -> {_short(after)}"


def _list_changes(old: list[Any], new: list[Any]) -> str:
    gone, come = [item for item in old if item not in new], [item for item in new if item not in old]
    alike = [(g, c) for g in gone for c in come if _short(g) == _short(c) and isinstance(g, dict) and "name" in g]
    kept = [item for pair in alike for item in pair]
    said = [f"~ {before['name']} ({_inside(before, after)})" for before, after in alike]
    said += [f"- {_short(item)}" for item in gone if item not in kept]
    said += [f"+ {_short(item)}" for item in come if item not in kept]
    return ", ".join(said) or "in another order"


def _inside(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs in two that would read the same. A digest says nothing to a person."""
    changed = [line for line in _variable_changes(old, new) if not line.startswith("digest ")]
    return ", ".join(changed) or "other packages"


def _short(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_short, value)) or "none"
    if isinstance(value, dict) and {"name", "version"} <= value.keys():
        return f"{value['name']}={value['version'] or 'open'}"
    return "none" if value in (None, "", {}) else str(value)
