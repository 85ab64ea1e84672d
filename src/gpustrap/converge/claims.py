"""The claims of a run, and the ledger that they and the node's observed state make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpustrap.model.ledger import Claim, Ledger, Resource, RunMark

Claims = dict[str, tuple[Claim, ...]]
Key = tuple[str, str]


def read_claims(path: Path) -> tuple[Claims, tuple[str, ...]]:
    """Read what the callback wrote: per node each resource once; the last role that claimed it has it.

    Returns:
        The claims, and the lines that are none: a run that was killed leaves its last one cut off.
    """
    found: dict[str, dict[Key, Claim]] = {}
    lost: list[str] = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            claim, node = Claim.model_validate_json(line), str(json.loads(line)["node"])
        except (ValueError, KeyError):
            lost.append(f"not a claim: {line[:200]}")
        else:
            found.setdefault(node, {})[key(claim)] = claim
    return {node: tuple(claims.values()) for node, claims in found.items()}, tuple(lost)


def key(thing: Claim | Resource) -> Key:
    """What identifies a resource on a node."""
    return (str(thing.kind), thing.name)


def make_ledger(
    *,
    run_id: str,
    complete: bool,
    tool: str,
    lock_digest: str,
    claims: Iterable[Claim],
    states: Sequence[Mapping[str, Any]],
    old: Ledger | None,
) -> tuple[Ledger, tuple[str, ...]]:
    """The ledger after a run.

    A complete run replaces the old ledger; what nobody claims any more is kept apart, as left. A partial one (tags, a
    failure) merges into it: what it claimed is updated, the rest stays as it was, and so does the digest of the lock,
    because the node has not yet all of it.

    Args:
        run_id: Of the run that ends.
        complete: Whether everything was run and nothing failed.
        tool: gpustrap's version.
        lock_digest: Digest of the node's entry of the lock.
        claims: What the roles claimed in this run.
        states: The node's answer to ``observe`` for these claims: ``{"kind", "name", "state" | "unknown"}``.
        old: The ledger before.

    Returns:
        The ledger, and the names of resources whose state could not be read: a run with any is not complete.
    """
    observed = {(str(s.get("kind")), str(s.get("name"))): s for s in states}
    fresh: dict[Key, Resource] = {}
    unread: list[str] = []
    for claim in claims:
        state = observed.get(key(claim), {}).get("state")
        if not isinstance(state, Mapping):
            unread.append(f"{claim.kind} {claim.name}")
            continue
        fresh[key(claim)] = Resource(kind=claim.kind, name=claim.name, role=claim.role, state=dict(state))
    before = {} if old is None else {key(r): r for r in old.resources}
    left = {} if old is None else {key(r): r for r in old.left}
    kept, left = ({}, {**left, **before}) if complete else (before, left)
    whole = complete and not unread
    ledger = Ledger(
        run=RunMark(id=run_id, complete=whole),
        tool=tool,
        lock_digest=lock_digest if whole or old is None else old.lock_digest,
        resources=tuple(sorted({**kept, **fresh}.values(), key=key)),
        left=tuple(sorted((r for k, r in left.items() if k not in {*kept, *fresh}), key=key)),
    )
    return ledger, tuple(unread)
