"""Versions of packages: what is locked, what the node's package manager knows, how they compare."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from gpustrap.resolve.parts import Inputs

# 5:29.7.2-1~ubuntu.24.04~noble -> 29.7.2
_UPSTREAM = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)*)")


def upstream(version: str) -> str:
    """The leading numbers of a package's version, without epoch and revision; empty where there are none."""
    found = _UPSTREAM.match(version)
    return found[1] if found else ""


@lru_cache(4096)  # bounded: versions come from nodes, too
def numbers(version: str) -> tuple[int, ...]:
    """Those numbers, to compare by: 12.10 is more than 12.9."""
    return tuple(int(part) for part in upstream(version).split(".") if part)


def known(inputs: Inputs, name: str) -> tuple[str, ...]:
    """The versions of a package that the node's package manager can get, newest first."""
    manager = inputs.facts.package_manager
    return manager.versions.get(name) or tuple(filter(None, (manager.candidates.get(name),)))


def known_to_all(inputs: Inputs, names: Iterable[str]) -> tuple[str, ...]:
    """The versions that it can get of each of several packages, newest first."""
    first, *others = (known(inputs, name) for name in names)
    return tuple(version for version in first if all(version in other for other in others))


def locked_versions(inputs: Inputs, component: str, role: str) -> dict[str, str]:
    """Package -> version as locked for a role; empty where nothing is kept or the component is to be upgraded."""
    if component in inputs.upgrade:
        return {}
    return {p["name"]: p["version"] for p in inputs.kept(role, f"{role}_packages") or ()}


def or_newer(newest: str, version: str) -> str:
    """The end of a reason: what is newer, and how to get it; empty where nothing is."""
    return f"; {newest} is available: gpustrap plan --upgrade takes it" if newest not in {"", version} else ""


def listed(versions: dict[str, str]) -> list[dict[str, str]]:
    """Packages and versions as roles take them."""
    return [{"name": name, "version": version} for name, version in versions.items()]


def installed(inputs: Inputs, names: Iterable[str]) -> bool:
    """Whether the node has all of some packages, in any version."""
    return all(name in inputs.facts.package_manager.packages for name in names)
