"""The container engine: podman with settings of the lab's own, never the host's."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.lab import state

LABEL_LAB = "gpustrap.lab"
LABEL_NODE = "gpustrap.lab.node"
LABEL_OS = "gpustrap.lab.os"
LABEL_ADDRESS = "gpustrap.lab.address"
LABEL_RECIPE = "gpustrap.lab.recipe"
LABEL_SNAPSHOT = "gpustrap.lab.snapshot"

CGROUP = Path("/sys/fs/cgroup")


class EngineError(GpustrapError):
    """The engine ended a command with an error; callers that know what it means to the user say that instead.

    Attributes:
        words: What it said on stderr.
    """

    def __init__(self, words: str) -> None:
        super().__init__(
            Problem(
                code="lab-engine-failed",
                subject="podman",
                message="ended with an error",
                exit_code=ExitCode.REFUSED,
                evidence=words,
                remedy="gpustrap lab status",
            )
        )
        self.words = words


def cgroup_v1() -> bool:
    """Whether this machine has the old (or hybrid) cgroup layout."""
    return not (CGROUP / "cgroup.controllers").exists()


def runtime() -> str | None:
    """The OCI runtime to use: crun refuses the old cgroup layout, so there it must be runc."""
    names = ("runc",) if cgroup_v1() else ("crun", "runc")
    return next((name for name in names if shutil.which(name)), None)


@dataclass(frozen=True, slots=True)
class Engine:
    """Calls podman."""

    config: Path

    @classmethod
    def start(cls) -> Engine:
        """Write the lab's containers.conf and give an engine that uses it."""
        config = state.root() / "containers.conf"
        state.write(config, containers_conf())
        return cls(config)

    def call(
        self, *arguments: str, stdin: bytes | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[bytes]:
        """Run podman and give what came out, whatever its exit status."""
        environment = {**os.environ, "CONTAINERS_CONF": str(self.config)}
        try:
            return subprocess.run(
                ("podman", *arguments),
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                timeout=timeout,
                env=environment,
                check=False,
                umask=0o022,
            )
        except FileNotFoundError as error:
            raise EngineError(str(error)) from error
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"podman {arguments[0]} did not end within {timeout:.0f} s") from error

    def run(self, *arguments: str, stdin: bytes | None = None, timeout: float = 120) -> str:
        """Run podman and give its stdout.

        Raises:
            EngineError: It ended with an error or not in time.
        """
        done = self.call(*arguments, stdin=stdin, timeout=timeout)
        if done.returncode != 0:
            raise EngineError(done.stderr.decode(errors="replace").strip())
        return done.stdout.decode(errors="replace").strip()

    def list(self, what: str, *filters: str) -> list[dict[str, Any]]:
        """List containers (``ps``), ``images``, ``volume`` or ``network`` objects by filters such as ``label=…``."""
        listing = {"ps": ("ps", "--all"), "images": ("images",)}.get(what, (what, "ls"))
        flags = [word for condition in filters for word in ("--filter", condition)]
        return json.loads(self.run(*listing, *flags, "--format", "json") or "[]") or []

    def exists(self, what: str, name: str) -> bool:
        """Whether a ``container``, ``image``, ``network`` or ``volume`` of that name exists."""
        return self.call(what, "exists", name).returncode == 0

    def interactive(self, arguments: Sequence[str]) -> int:
        """Run podman on this terminal and give its exit status."""
        environment = {**os.environ, "CONTAINERS_CONF": str(self.config)}
        return subprocess.run(("podman", *arguments), env=environment, check=False).returncode


def containers_conf() -> str:
    """The lab's own containers.conf.

    Limits must not exceed this machine's, which podman's defaults may, nor those podman gives itself at its start
    (at most as many processes as the kernel's smallest pid_max), because a restricted root cannot raise them again.
    """
    limits = [
        f'"{name}={min(soft, most)}:{min(hard, most)}"'
        for name, kind, most in (("nofile", resource.RLIMIT_NOFILE, 1 << 20), ("nproc", resource.RLIMIT_NPROC, 1 << 15))
        for soft, hard in (tuple(v if v != resource.RLIM_INFINITY else most for v in resource.getrlimit(kind)),)
    ]
    return "\n".join(
        (
            "[containers]",
            f"default_ulimits = [{', '.join(limits)}]",
            "[engine]",
            f'runtime = "{runtime() or "runc"}"',
            'cgroup_manager = "cgroupfs"',
            'events_logger = "file"',
            "[network]",
            'network_backend = "netavark"',
            "",
        )
    )


def refusal(code: str, subject: str, message: str, *, evidence: str = "", remedy: str = "") -> GpustrapError:
    """An error of the lab."""
    return GpustrapError(Problem(code, subject, message, ExitCode.REFUSED, evidence=evidence, remedy=remedy))
