"""Whether the versions of a lock can still be had: an archive drops what it supersedes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.plan import Finding

CODE = "locked-version-gone"
LISTED = 100  # the probe names no more versions of a package; a locked one that is older may be there all the same
SNAPSHOT_TIME = "YYYYMMDDTHHMMSSZ"
# Which of `plan.COMPONENTS` a role's versions move with.
COMPONENT_OF = {
    "docker": "docker",
    "nvidia_driver": "driver",
    "nvidia_fabric_manager": "driver",
    "cuda_toolkit": "cuda",
    "nvidia_container_toolkit": "container-toolkit",
}


@dataclass(frozen=True, slots=True)
class Gone:
    """A locked version that the node neither has nor can get."""

    role: str
    package: str
    version: str
    installed: str
    newest: str

    def __str__(self) -> str:
        """The version, as apt would be asked for it."""
        return f"{self.package}={self.version}"

    @property
    def evidence(self) -> str:
        """What there is instead."""
        return f"{self}: installed {self.installed or 'none'}, available {self.newest}"


def locked_packages(entry: NodeLock | None) -> list[str]:
    """Every package of which a role of a node installs an exact version."""
    return sorted({package for _, package, _ in _locked(entry)}) if entry else []


def gone_versions(entry: NodeLock, facts: Facts, roles: Collection[str] = ()) -> tuple[Gone, ...]:
    """The locked versions that cannot be had.

    Nothing is said of a package that none of the node's sources has at all: a role may be about to add its repository.

    Args:
        entry: The node's entry in the lock.
        facts: What its package manager knows.
        roles: Only of these; of all when empty.
    """
    manager = facts.package_manager
    return tuple(
        Gone(role, package, version, manager.packages.get(package, ""), available[0])
        for role, package, version in _locked(entry)
        if (not roles or role in roles)
        and 0 < len(available := manager.versions.get(package, ())) < LISTED
        and version not in {*available, manager.packages.get(package)}
    )


def _locked(entry: NodeLock) -> Iterator[tuple[str, str, str]]:
    """Role, package and version of every ``<role>_packages`` that names versions."""
    for role, variables in entry.roles.items():
        for name, value in variables.items():
            if name.endswith("_packages") and isinstance(value, list):
                rows = [row for row in value if isinstance(row, dict) and row.get("version")]
                yield from ((role, str(row.get("name")), str(row["version"])) for row in rows)


def refuse_gone(name: str, entry: NodeLock, gone: tuple[Gone, ...]) -> Problem:
    """Apply would fail in the middle, so it does not begin; three ways out."""
    return Problem(
        code=CODE,
        subject=f"node {name}",
        message=f"{_what(gone)} can no longer be had; nothing was changed",
        exit_code=ExitCode.REFUSED,
        evidence="\n".join(g.evidence for g in gone),
        remedy=_ways_out(name, entry, gone),
    )


def warn_gone(name: str, entry: NodeLock, gone: tuple[Gone, ...]) -> Finding:
    """A plan keeps it: until apply there is time for any of the ways out."""
    return Finding(
        code=CODE,
        severity="warning",
        subject="",
        message=f"{_what(gone)} can no longer be had, so apply will refuse this node",
        evidence="\n".join(g.evidence for g in gone),
        advice=_ways_out(name, entry, gone),
    )


def _what(gone: tuple[Gone, ...]) -> str:
    more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
    return f"locked {', '.join(map(str, gone[:3]))}{more}"


def _ways_out(name: str, entry: NodeLock, gone: tuple[Gone, ...]) -> str:
    components = sorted({COMPONENT_OF[g.role] for g in gone if g.role in COMPONENT_OF})
    only = "".join(f" --only {component}" for component in components)
    snapshots = [r.snapshot.replace("{time}", SNAPSHOT_TIME) for r in entry.repositories if r.snapshot]
    past = f" of a time when it was there ({', '.join(snapshots)})" if snapshots else ", if there is one"
    return (
        f"gpustrap plan {name} --upgrade{only}; or keep the version: give apt on {name} a source that has it, "
        f"a snapshot of the archive{past} or a mirror of your own"
    )
