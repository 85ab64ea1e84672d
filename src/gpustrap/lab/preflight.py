"""What this machine lacks to run lab nodes, each thing with the command that brings it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.lab import engine

_HELPERS = tuple(Path(p) for p in ("/usr/lib/podman", "/usr/libexec/podman", "/usr/local/libexec/podman", "/usr/bin"))


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package of the distribution that the lab needs.

    Attributes:
        package: Its name in Debian and Ubuntu.
        why: For what; shown before anything is installed.
        there: Whether this machine has it.
    """

    package: str
    why: str
    there: Callable[[], bool]


def _helper(name: str) -> bool:
    return any((directory / name).exists() for directory in _HELPERS)


def requirements() -> tuple[Requirement, ...]:
    """Everything the lab needs on this machine."""
    return (
        Requirement("podman", "runs the nodes", lambda: shutil.which("podman") is not None),
        Requirement(
            "runc" if engine.cgroup_v1() else "crun", "starts containers", lambda: engine.runtime() is not None
        ),
        Requirement("netavark", "the nodes' private bridge", lambda: _helper("netavark")),
        Requirement("aardvark-dns", "nodes find each other by name", lambda: _helper("aardvark-dns")),
        Requirement("iproute2", "finds a subnet that is free", lambda: shutil.which("ip") is not None),
        Requirement("mmdebstrap", "builds the Debian images", lambda: shutil.which("mmdebstrap") is not None),
        Requirement(
            "debian-archive-keyring",
            "the keys Debian's packages are checked with",
            lambda: Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists(),
        ),
    )


def missing() -> tuple[Problem, ...]:
    """Why lab nodes cannot run here; empty when they can."""
    problems = []
    if os.geteuid() != 0:
        problems.append(
            Problem(
                code="lab-needs-root",
                subject="this machine",
                message="lab nodes need root: systemd and docker in a node cannot run in a rootless container",
                exit_code=ExitCode.REFUSED,
                remedy='sudo "$(command -v gpustrap)" lab up',
            )
        )
    absent = [requirement for requirement in requirements() if not requirement.there()]
    if absent:
        problems.append(
            Problem(
                code="lab-packages-missing",
                subject="this machine",
                message=f"the lab needs {', '.join(r.package for r in absent)}",
                exit_code=ExitCode.REFUSED,
                evidence="\n".join(f"{r.package}: {r.why}" for r in absent),
                remedy=f"apt-get install --no-install-recommends {' '.join(r.package for r in absent)}",
            )
        )
    return tuple(problems)


def require() -> None:
    """Refuse to go on where lab nodes cannot run.

    Raises:
        GpustrapError: With everything that is missing.
    """
    problems = missing()
    if problems:
        raise GpustrapError(*problems)
