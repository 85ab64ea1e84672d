"""Locks the environments of a plan: a file of the site for each kind of node, with every package and its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpustrap.catalog.schema import Catalog
from gpustrap.environments.closure import DIRECTORY, Closure, ClosureError, Compiled
from gpustrap.environments.frameworks import two_frameworks
from gpustrap.environments.lock import ROLE, Compiler, closure_of
from gpustrap.environments.text import difference, indexes
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.environment import Environment
from gpustrap.model.facts import Facts
from gpustrap.model.lock import NodeLock
from gpustrap.model.node import Node
from gpustrap.model.plan import Finding, NodePlan
from gpustrap.model.progress import Progress, Step
from gpustrap.model.request import DEFAULT_ENVIRONMENTS
from gpustrap.model.site import Site
from gpustrap.resolve.environments.left_out import ITEMS, items, leave_out
from gpustrap.site.files import write_atomically

NAMES = 4
INDEX = f"{ROLE}_index"


@dataclass
class Closures:
    """Locks environments, each kind of them once.

    Attributes:
        site: Where the lock files are.
        before: The lock until now.
        catalog: Which glibc a distribution has.
        compiler: What finds packages.
        upgrade: Take the newest versions.
        progress: Told what takes long.
        made: The lock files that were made: text by name.
        users: Which nodes use which file.
    """

    site: Site
    before: Mapping[str, NodeLock]
    catalog: Catalog
    compiler: Compiler
    upgrade: bool
    progress: Progress
    made: dict[str, str] = field(default_factory=dict)
    users: dict[str, list[str]] = field(default_factory=dict)
    _found: dict[str, _Locked | ClosureError] = field(default_factory=dict)
    _silent: dict[tuple[str, ...], ClosureError] = field(default_factory=dict)

    def lock(self, node: Node, facts: Facts, plan: NodePlan) -> NodePlan:
        """The plan with its environments locked; or why they cannot be.

        The default environment, which nobody asked for, stops nothing: it stays as it was, or is left out.
        """
        if plan.lock is None or ROLE not in plan.lock.roles:
            return plan
        default = node.request.environments == DEFAULT_ENVIRONMENTS
        made: list[dict[str, Any]] = []
        problems: list[Problem] = []
        findings: list[Finding] = []
        without: dict[str, Finding] = {}
        for item in items(plan.lock):
            wanted = Environment.model_validate(item)
            old = self._as_it_was(node.name, wanted.name) if default else None
            made.append(item)
            try:
                locked = self._locked(node.name, wanted, facts, plan.lock)
            except ClosureError as error:
                if not default:
                    problems.append(_problem(node.name, wanted, error))
                elif old:
                    made[-1] = old
                    findings.append(_warning(wanted, error, "it stays as it was"))
                else:
                    without[wanted.name] = _warning(wanted, error, "it is left out: nobody asked for it by name")
                continue
            made[-1] = {**item, "lock": locked.file, "digest": locked.digest}
            findings += locked.findings
        changed = replace(plan, lock=self._with_index(_with(plan.lock, made)), findings=(*plan.findings, *findings))
        return replace(changed, lock=None, problems=tuple(problems)) if problems else leave_out(changed, without)

    def _with_index(self, entry: NodeLock) -> NodeLock:
        """The entry with the address of the package index, which nodes need: where none is asked for, uv's own."""
        role = entry.roles[ROLE]
        of_frameworks = {item["index"] for item in items(entry)}
        files = [item["lock"] for item in items(entry) if item["lock"]]
        found = (url for file in files for url in indexes(self.made.get(file) or self._read(file)))
        index = role[INDEX] or next((url for url in found if url not in of_frameworks), "")
        return entry.model_copy(update={"roles": {**entry.roles, ROLE: {**role, INDEX: index}}})

    def shared(self, entries: Mapping[str, NodeLock]) -> dict[str, NodeLock]:
        """Other nodes of the lock, whose files were made anew: all nodes of a kind have the same packages."""
        digests = {file: _digest(text) for file, text in self.made.items()}
        return {name: _renewed(entry, digests) for name, entry in entries.items()}

    def changes(self) -> Iterator[str]:
        """A line for each file that was made and has other packages than the one before it."""
        for file in sorted(self.made):
            said = difference(self._previous(file), self.made[file])
            if said:
                yield f"{'~' if self._read(file) else '+'} {file} ({_names(self.users[file])}): {said}"

    def unused(self, entries: Mapping[str, NodeLock]) -> tuple[str, ...]:
        """Lock files of the site that no node has any more. They are never removed for somebody."""
        used = {item.get("lock") for entry in entries.values() for item in items(entry)} | self.made.keys()
        there = sorted(f"{DIRECTORY}/{path.name}" for path in (self.site.root / DIRECTORY).glob("*.txt"))
        return tuple(file for file in there if file not in used and _is_ours(self._read(file)))

    def write(self) -> None:
        """Write the files that were made.

        Raises:
            GpustrapError: One cannot be written; those that are there are as they were.
        """
        for file, text in self.made.items():
            path = self.site.root / file
            try:
                path.parent.mkdir(mode=0o755, exist_ok=True)
                write_atomically(path, text, mode=0o644)
            except OSError as error:
                remedy = "make room or give yourself the right to write there, then gpustrap plan"
                message = "it cannot be written; the lock is as it was"
                raise GpustrapError(
                    Problem("lock-not-written", f"file {path}", message, ExitCode.REFUSED, str(error), remedy)
                ) from error

    def _locked(self, name: str, wanted: Environment, facts: Facts, entry: NodeLock) -> _Locked:
        distro = self.catalog.distro(facts.os.id, facts.os.version_id)
        simulated = any(c.simulated for c in entry.choices if c.item == f"environment-{wanted.name}")
        closure = closure_of(
            wanted,
            entry.roles[ROLE],
            machine=facts.os.architecture,
            glibc=distro.glibc if distro else "",
            simulated=simulated,
            root=self.site.root,
        )
        file = closure.file
        self.users.setdefault(file, []).append(name)
        if file not in self._found:
            self._found[file] = self._kept(closure) or self._compiled(closure, name)
        found = self._found[file]
        if isinstance(found, ClosureError):
            raise found
        return found

    def _kept(self, closure: Closure) -> _Locked | None:
        """The file that is there, where it was made from the same and is what the lock has of it."""
        text = self._read(closure.file)
        if self.upgrade or not text.startswith(closure.header):
            return None
        digest = _digest(text)
        return _Locked(closure.file, digest) if self._known(closure.file) <= {digest} else None

    def _known(self, file: str) -> set[str]:
        """Digests that the lock has of a file."""
        locked = (item for entry in self.before.values() for item in items(entry))
        return {str(item["digest"]) for item in locked if item.get("lock") == file}

    def _compiled(self, closure: Closure, node: str) -> _Locked | ClosureError:
        if closure.sources in self._silent:
            return self._silent[closure.sources]
        there = self._read(closure.file)
        by_hand = bool(there) and not self.upgrade and bool(self._known(closure.file) - {_digest(there)})
        preferred = "" if self.upgrade else there or self._of_before(node, closure.name)
        self.progress(Step("", f"finding the packages of environment {closure.name}"))
        try:
            compiled = self.compiler(closure, preferred)
        except ClosureError as error:
            if error.unreachable:
                self._silent[closure.sources] = error
            return _by_hand(closure, error) if by_hand else error
        two = two_frameworks(closure, compiled.body)
        if two:
            return two
        self.made[closure.file] = closure.header + compiled.body
        findings = (*_notes(closure, compiled), *((_changed(closure),) if by_hand else ()))
        return _Locked(closure.file, _digest(self.made[closure.file]), findings)

    def _previous(self, file: str) -> str:
        """What a file is compared with: itself, else what its first node had."""
        return self._read(file) or self._of_before(self.users[file][0], Path(file).name.rsplit("-", 1)[0])

    def _of_before(self, node: str, environment: str) -> str:
        old = self._as_it_was(node, environment)
        return self._read(old["lock"]) if old else ""

    def _as_it_was(self, node: str, environment: str) -> dict[str, Any] | None:
        """An environment in the lock until now, where its file is there."""
        entry = self.before.get(node)
        old = next((i for i in items(entry) if i["name"] == environment), None) if entry else None
        return old if old and old.get("lock") and self._read(old["lock"]) else None

    def _read(self, file: str) -> str:
        try:
            return (self.site.root / file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""


@dataclass(frozen=True)
class _Locked:
    file: str
    digest: str
    findings: tuple[Finding, ...] = ()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _with(entry: NodeLock, made: Sequence[dict[str, Any]]) -> NodeLock:
    """The entry with these environments."""
    return entry.model_copy(update={"roles": {**entry.roles, ROLE: {**entry.roles[ROLE], ITEMS: list(made)}}})


def _renewed(entry: NodeLock, digests: Mapping[str, str]) -> NodeLock:
    if ROLE not in entry.roles:
        return entry
    return _with(entry, [{**i, "digest": digests.get(i.get("lock", ""), i.get("digest", ""))} for i in items(entry)])


def _is_ours(text: str) -> bool:
    return "\n# Written by `gpustrap plan`" in text[:500]


def _problem(node: str, wanted: Environment, error: ClosureError) -> Problem:
    message = f"environment {wanted.name}: {error.message}"
    return Problem(error.code, f"node {node}", message, ExitCode.REFUSED, error.evidence, error.remedy)


def _warning(wanted: Environment, error: ClosureError, what: str) -> Finding:
    return Finding(
        code=error.code,
        severity="warning",
        subject=f"environment {wanted.name}",
        message=f"{error.message}, so {what}",
        evidence=error.evidence,
        advice=error.remedy,
    )


def _notes(closure: Closure, compiled: Compiled) -> Iterator[Finding]:
    for note in compiled.notes:
        yield Finding(
            code="environment-yanked",
            severity="warning",
            subject=f"environment {closure.name}",
            message="its authors took a version back that it has",
            evidence=note,
            advice="ask for another version in gpustrap_environments, or its requirements file",
        )


def _changed(closure: Closure) -> Finding:
    return Finding(
        code="environment-file-changed",
        severity="warning",
        subject=f"environment {closure.name}",
        message=f"{closure.file} was not what the lock was made with; its hashes were looked up anew",
        advice=f"git diff {closure.file}; what an environment has is changed in gpustrap_environments",
    )


def _by_hand(closure: Closure, error: ClosureError) -> ClosureError:
    message = f"{closure.file} was changed by hand, and cannot be made anew: {error.message}"
    return ClosureError(error.code, message, f"git checkout {closure.file}", error.evidence)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
