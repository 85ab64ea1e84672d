"""Keeps the last answer about the inventory, as long as nothing it rests on has changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from gpustrap import __version__
from gpustrap.content import ansible_config
from gpustrap.model.site import Site
from gpustrap.site.files import write_atomically

# A template that only names variables depends on nothing but the inventory. Anything else (lookups, filters,
# tests, vaults) may read the clock, files or secrets: such an inventory is read anew every time.
_PLAIN_TEMPLATE = re.compile(r"\{\{\s*[\w.]+\s*\}\}")
_NOT_CACHEABLE = ("{{", "{%", "$ANSIBLE_VAULT", "!vault")


def key(site: Site, question: dict[str, Any]) -> str | None:
    """Digest of the question and of everything that decides the answer; None where it must not be cached."""
    state = hashlib.sha256()
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith("ANSIBLE_"))
    for part in (__version__, json.dumps(question, sort_keys=True), json.dumps(settings)):
        state.update(part.encode() + b"\0")
    for path in (ansible_config(), *_sources(site.inventory)):
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if _depends_on_more(content):
            return None
        state.update(f"{path}\0{len(content)}\0".encode() + content)
    return state.hexdigest()


def _sources(inventory: Path) -> list[Path]:
    return sorted(Path(top, name) for top, _dirs, names in os.walk(inventory, followlinks=True) for name in names)


def _depends_on_more(content: bytes) -> bool:
    text = _PLAIN_TEMPLATE.sub("", content.decode(errors="replace"))
    return any(mark in text for mark in _NOT_CACHEABLE)


def load(site: Site, digest: str | None) -> dict[str, Any] | None:
    """The answer kept under this key, if it is the last one."""
    try:
        kept = json.loads(_file(site).read_bytes())
    except (OSError, ValueError):
        return None
    answer: dict[str, Any] | None = kept.get("answer") if digest and kept.get("key") == digest else None
    return answer


def save(site: Site, digest: str | None, answer: dict[str, Any]) -> None:
    """Keep an answer; a site that cannot be written to is read anew every time."""
    if digest is None:
        return
    try:
        write_atomically(_file(site), json.dumps({"key": digest, "answer": answer}))
    except OSError:
        return


def _file(site: Site) -> Path:
    return site.state / "cache" / "inventory.json"
