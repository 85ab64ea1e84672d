"""What each part of the resolver is given and gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpustrap.catalog.schema import Catalog, Distro
from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Choice, LockedRepository, NodeLock
from gpustrap.model.plan import Finding, Reasoning
from gpustrap.model.request import Request


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a decision may rest on.

    Attributes:
        keep: The node's entry in the lock, where it was made for the same system.
        same_request: That entry was made for the same request, too.
        upgrade: Components (``docker``, ``driver``, …) whose newest versions are taken all the same.
        offline: There is no node to ask: versions that only its package manager knows stay open.
    """

    name: str
    facts: Facts
    request: Request
    catalog: Catalog
    distro: Distro
    keep: NodeLock | None
    same_request: bool
    upgrade: frozenset[str]
    offline: bool = False

    def kept(self, role: str, variable: str) -> Any:  # noqa: ANN401 - role variables have every type
        """The locked value of a role variable, also of a role still to come; None where nothing is kept."""
        if self.keep is None:
            return None
        return (self.keep.roles.get(role) or self.keep.pending.get(role) or {}).get(variable)

    def problem(self, code: str, message: str, remedy: str, *, evidence: str = "", usage: bool = False) -> Problem:
        """A refusal about this node; ``usage`` where a variable itself is wrong."""
        exit_code = ExitCode.USAGE if usage else ExitCode.REFUSED
        return Problem(code, f"node {self.name}", message, exit_code, evidence, remedy)

    @property
    def simulated(self) -> bool:
        """Whether what is decided about GPUs rests on the lab: on its repositories, or on GPUs that are not there."""
        return self.request.simulated or self.facts.nvidia.simulated

    @property
    def proxy(self) -> dict[str, Any]:
        """The proxies as roles take them: only what is set."""
        proxy = self.request.proxy.model_dump(mode="json", exclude_none=True)
        return {key: value for key, value in proxy.items() if value}


@dataclass(frozen=True, slots=True)
class Part:
    """One role's share of a plan. With problems, only they and the findings count.

    Attributes:
        disk: Directory and bytes of what is not there yet.
    """

    choices: tuple[Choice, ...] = ()
    variables: dict[str, Any] | None = None
    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    repositories: tuple[LockedRepository, ...] = ()
    disk: tuple[tuple[str, int], ...] = ()
