"""Locks one environment by the engine that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpustrap.environments.closure import Closure, Compiled
from gpustrap.environments.conda import compile_conda
from gpustrap.environments.requirements import read_requirements, read_specs
from gpustrap.environments.uv import compile_uv
from gpustrap.model.environment import FILE, Environment

# What locks: a closure, and the lock file whose versions are to be kept where they fit.
Compiler = Callable[[Closure, str], Compiled]
ROLE = "ml_environments"


def closure_of(
    wanted: Environment, variables: Mapping[str, Any], *, machine: str, glibc: str, simulated: bool, root: Path
) -> Closure:
    """What the packages of an environment of the lock follow from.

    Args:
        wanted: The environment.
        variables: The role's.
        machine: The node's architecture.
        glibc: What its distribution has at least.
        simulated: The choice rests on a stand-in.
        root: The site, where files of requirements are.

    Raises:
        ClosureError: A file of requirements is not there, or cannot be locked.
    """
    of_conda = wanted.engine == "conda"
    requirements: list[str] = []
    constraints = list(wanted.constraints)
    for text in wanted.requirements:
        if not text.startswith(FILE):
            requirements.append(text)
        elif of_conda:
            requirements += read_specs(root, text.removeprefix(FILE), wanted.channels)
        else:
            further, kept_to = read_requirements(root, text.removeprefix(FILE))
            requirements += further
            constraints += kept_to
    return Closure(
        name=wanted.name,
        engine=wanted.engine,
        python=wanted.python,
        machine=machine,
        glibc=glibc,
        requirements=tuple(requirements),
        constraints=tuple(constraints),
        index="" if of_conda else str(variables[f"{ROLE}_index"]),
        framework_index=wanted.index,
        channels=wanted.channels,
        cuda=wanted.cuda if of_conda else "",
        simulated=simulated,
    )


def compile_closure(closure: Closure, preferred: str) -> Compiled:
    """The packages of an environment.

    Args:
        closure: What they follow from.
        preferred: A lock file whose versions are kept where they still fit; empty for the newest.

    Raises:
        ClosureError: There are none, or an index or channel cannot be asked.
    """
    if closure.engine == "conda":
        return compile_conda(closure, closure.requirements, preferred)
    compiled = compile_uv(closure, preferred)
    if not closure.channels:
        return compiled
    python = compile_conda(closure, (), preferred)
    return Compiled(f"{compiled.body}\n{python.body}", compiled.notes)
