"""env: the environments of nodes, a shell in one, and what one is locked to."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import ValidationError

from gpustrap.commands.ledgers import ask_verb
from gpustrap.converge.session import private_directory
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode, worst
from gpustrap.model.built import Build, Builds, BuiltEnvironment, State
from gpustrap.model.environment import Environment
from gpustrap.model.lock import NodeLock
from gpustrap.model.node import Node, Secrets
from gpustrap.model.progress import SEE_BELOW, Progress, Step, silent
from gpustrap.model.site import Site
from gpustrap.site.lockfile import read_lock
from gpustrap.ssh.interactive import interactive
from gpustrap.ssh.jump_config import jump_config

ROLE = "ml_environments"
PREFIX = "/opt/gpustrap/envs"
SNIPPET = "/etc/profile.d/gpustrap-environments.sh"
ID_LENGTH = 16  # of a digest, in the name of a build's directory


@dataclass(frozen=True, slots=True)
class Listing:
    """The environments of nodes, and why there is nothing of some."""

    rows: tuple[BuiltEnvironment, ...]
    problems: tuple[Problem, ...]

    @property
    def exit_code(self) -> ExitCode:
        """OK if every node answered."""
        return worst(p.exit_code for p in self.problems)


def list_environments(
    site: Site, nodes: Sequence[Node], *, secrets: Secrets, forks: int = 20, progress: Progress = silent
) -> Listing:
    """Ask nodes for their environments; one round trip each, nothing is started there.

    Args:
        site: The site.
        nodes: Which nodes.
        secrets: Passwords of this run.
        forks: Nodes asked at a time.
        progress: Told how it goes.

    Raises:
        GpustrapError: The lock is broken.
    """
    lock = read_lock(site)
    entries = lock.nodes if lock else {}
    answers = ask_verb(
        site,
        nodes,
        "environments",
        lambda node: {"prefix": _prefix(entries.get(node.name))},
        secrets=secrets,
        forks=forks,
        progress=progress,
    )
    rows: list[BuiltEnvironment] = []
    problems: list[Problem] = []
    for node in nodes:
        answer = answers[node.name]
        found = answer if isinstance(answer, GpustrapError) else _read(node.name, answer)
        if isinstance(found, GpustrapError):
            problems += found.problems
            progress(Step(node.name, SEE_BELOW, done=True, ok=False))
            continue
        rows += compare(node.name, found, wanted(entries.get(node.name)))
        there = len({build.name for build in found.environments})
        progress(Step(node.name, f"{there} environment{'' if there == 1 else 's'}", done=True))
    return Listing(tuple(rows), tuple(problems))


def _prefix(entry: NodeLock | None) -> str:
    return str(entry.roles.get(ROLE, {}).get("ml_environments_prefix", PREFIX)) if entry else PREFIX


def wanted(entry: NodeLock | None) -> tuple[Environment, ...]:
    """The environments that a node's lock has."""
    found = entry.roles.get(ROLE, {}).get("ml_environments_environments") if entry else None
    return tuple(Environment.model_validate(one) for one in found or ())


def _read(name: str, answer: object) -> Builds | GpustrapError:
    """What a node sent: it may be anything."""
    try:
        return Builds.model_validate(answer)
    except ValidationError as error:
        return GpustrapError(
            Problem(
                code="probe-answer-invalid",
                subject=f"node {name}",
                message="its answer does not have the shape of environments, so none of it is used",
                exit_code=ExitCode.COULD_NOT_CHECK,
                evidence=str(error)[:1000],
                remedy=f"gpustrap inspect {name}",
            )
        )


def compare(node: str, found: Builds, wishes: Sequence[Environment]) -> Iterator[BuiltEnvironment]:
    """The rows of one node: those of its lock in their order, then others.

    Args:
        node: Inventory name.
        found: What it has.
        wishes: What its lock wants.
    """
    names = dict.fromkeys([*(wish.name for wish in wishes), *(build.name for build in found.environments)])
    wish_of = {wish.name: wish for wish in wishes}
    for name in names:
        builds = [build for build in found.environments if build.name == name]
        wish = wish_of.get(name)
        if wish and not any(build.current for build in builds):
            yield _not_built(node, wish)
        yield from (_row(node, build, _state(build, wish)) for build in builds)


def _state(build: Build, wish: Environment | None) -> State:
    if not build.marker.lock:
        return State.UNKNOWN if build.current else State.HALF_BUILT
    if not build.current:
        return State.PREVIOUS
    if wish is None:
        return State.UNWANTED
    if build.marker.lock != wish.digest[:ID_LENGTH]:
        return State.OUTDATED
    return State.CHANGED if build.changes else State.READY


def _row(node: str, build: Build, state: State) -> BuiltEnvironment:
    marker = build.marker
    version = f"{marker.version} {marker.variant}".strip()
    return BuiltEnvironment(
        *(node, build.name, marker.framework, version, marker.python, marker.built, state),
        changes=build.changes,
        path=build.path,
    )


def _not_built(node: str, wish: Environment) -> BuiltEnvironment:
    version = f"{wish.version} {wish.variant}".strip()
    return BuiltEnvironment(node, wish.name, wish.framework, version, wish.python, "", State.MISSING)


def find(site: Site, node: str, name: str) -> Environment:
    """An environment of a node's lock.

    Raises:
        GpustrapError: not-planned, environment-unknown.
    """
    lock = read_lock(site)
    entry = lock.nodes.get(node) if lock else None
    if entry is None:
        message, remedy = "is not in the lock, so nothing says which environments it has", f"gpustrap plan {node}"
        raise GpustrapError(_refuse("not-planned", f"node {node}", message, remedy))
    there = {one.name: one for one in wanted(entry)}
    if name not in there:
        has = f"it has {', '.join(there)}" if there else "it has none"
        remedy = f"name one of them, or add {name} to gpustrap_environments; then gpustrap plan {node}"
        raise GpustrapError(
            _refuse("environment-unknown", f"node {node}", f"its lock has no environment {name}: {has}", remedy)
        )
    return there[name]


def export(site: Site, node: str, name: str) -> str:
    """The file that an environment is locked to: every package of it, with versions and hashes.

    Raises:
        GpustrapError: not-planned, environment-unknown, environment-file-missing, environment-file-changed.
    """
    environment = find(site, node, name)
    subject = f"environment {name} of node {node}"
    try:
        text = (site.root / environment.lock).read_bytes()
    except OSError as error:
        message = f"its file cannot be read: {environment.lock or 'none is written yet'}"
        problem = _refuse("environment-file-missing", subject, message, f"gpustrap plan {node}", str(error))
        raise GpustrapError(problem) from error
    if hashlib.sha256(text).hexdigest() != environment.digest:
        message = f"{environment.lock} is not what the lock was made with: somebody changed it"
        remedy = f"bring it back from version control, or gpustrap plan {node}"
        raise GpustrapError(_refuse("environment-file-changed", subject, message, remedy))
    return text.decode("utf-8", "replace")


@contextmanager
def shell(site: Site, node: Node, name: str) -> Iterator[list[str]]:
    """The command that opens a shell on a node, with an environment active in it; it holds as long as the block.

    Raises:
        GpustrapError: not-planned, environment-unknown, ssh-config-broken.
    """
    find(site, node.name, name)
    # sh, whatever the login's shell is; then the login's shell, which keeps what sh was told.
    script = f'. {SNIPPET} && gpuenv {shlex.quote(name)} && exec "${{SHELL:-/bin/sh}}"'
    command = ["sh", "-c", script]
    if node.endpoint.local:
        yield command
        return
    known_hosts = site.known_hosts.resolve()
    identity = site.ssh_key.resolve() if site.ssh_key.exists() else None
    config = jump_config(node.endpoint, known_hosts=known_hosts, identity=identity)
    with private_directory() as place:
        file = place / "ssh_config"
        file.write_text(config, encoding="utf-8")
        yield interactive(
            node.endpoint,
            known_hosts=known_hosts,
            identity=identity,
            config=file if config else None,
            command=shlex.join(command),
        )


def _refuse(code: str, subject: str, message: str, remedy: str, evidence: str = "") -> Problem:
    return Problem(code, subject, message, ExitCode.USAGE, evidence=evidence, remedy=remedy)
