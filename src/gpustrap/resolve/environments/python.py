"""Whose Python an environment gets: the distribution's where builds are for it, else conda's, else one of uv's own."""

from __future__ import annotations

from dataclasses import dataclass

from gpustrap.model.environment import Interpreter
from gpustrap.resolve.environments.target import Target


@dataclass(frozen=True, slots=True)
class Python:
    """A Python that an environment can have.

    Attributes:
        version: Major and minor; empty where there is none.
        interpreter: Whose.
        reason: Why this one, as the end of a sentence; or why there is none.
    """

    version: str
    interpreter: Interpreter
    reason: str


def python_for(target: Target, pythons: tuple[str, ...]) -> Python:
    """The Python for a build.

    Args:
        target: The environment.
        pythons: Versions there are builds for, oldest first; empty where any will do.
    """
    wanted, own = target.wish.python, target.inputs.distro.python
    if wanted != "auto":
        if pythons and wanted not in pythons:
            return _none(f"it has builds for Python {pythons[0]} to {pythons[-1]}, and none for {wanted}")
        return _from(target, wanted, "as gpustrap_environments asks for")
    locked = str(target.locked.get("python", ""))
    kept = _from(target, locked, "locked") if locked and (not pythons or locked in pythons) else None
    if kept and kept.version:
        return kept
    if target.wish.engine == "uv" and own in (pythons or (own,)):
        return _from(target, own, f"{target.inputs.distro.name}'s own")
    return _elsewhere(target, pythons or (own,))


def _elsewhere(target: Target, pythons: tuple[str, ...]) -> Python:
    """Not the distribution's."""
    found = _by_policy(target, pythons)
    if found.version:
        return found
    distro = target.inputs.distro
    builds = f"it has builds for Python {pythons[0]} to {pythons[-1]}, {distro.name} has {distro.python}"
    return _none(f"{builds}, and {found.reason}")


def _by_policy(target: Target, pythons: tuple[str, ...]) -> Python:
    """One behind the newest by policy stable: other packages often have no builds for the newest yet."""
    newest = pythons[-1]
    if target.inputs.request.policy == "latest" or len(pythons) == 1:
        return _from(target, newest, "the newest that it has a build for")
    words = f"one behind {newest}, the newest that it has a build for, so that other packages have builds, too"
    return _from(target, pythons[-2], words)


def _from(target: Target, version: str, reason: str) -> Python:
    """Whoever has that version."""
    inputs = target.inputs
    if target.wish.engine == "conda":
        return Python(version, "conda", f"conda's, {reason}")
    if version == inputs.distro.python:
        return Python(version, "distribution", reason)
    if inputs.request.conda:
        return Python(version, "conda", f"conda's, {reason}")
    if inputs.request.python_mirror:
        return Python(version, "uv", f"uv's own, {reason}")
    return _none(f"Python {version} is nowhere to be had: gpustrap_conda is false, and gpustrap_python_mirror not set")


def _none(reason: str) -> Python:
    return Python("", "distribution", reason)
