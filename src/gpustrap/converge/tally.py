"""From events to how each node ended: a pure reducer, without clock, files or terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpustrap.converge.events import Event, EventKind
from gpustrap.converge.failures import hint_for
from gpustrap.model.progress import Step
from gpustrap.model.run import BootStep, NodeRun, Outcome, TaskFailure

SPEC_TASK = "Validating arguments against arg spec"


@dataclass(slots=True)
class _Node:
    """What is known of one node so far."""

    counts: dict[EventKind, int] = field(default_factory=dict)
    changed_tasks: list[str] = field(default_factory=list)
    failure: TaskFailure | None = None
    unreachable: bool = False
    over: bool = False  # the batch it was in has ended
    seconds: float = 0.0
    boots: list[BootStep] = field(default_factory=list)


class Tally:
    """Takes events in the order in which they came.

    Args:
        nodes: The nodes of this run.
        roles: Per node the roles it will run, in order; so that progress can say how far it is.
    """

    def __init__(self, nodes: Iterable[str], roles: Mapping[str, Sequence[str]]) -> None:
        self._nodes = {name: _Node() for name in nodes}
        self._roles = roles
        self._stats: Mapping[str, Mapping[str, int]] | None = None
        self.said: list[str] = []

    def take(self, event: Event) -> Iterator[Step]:
        """Count an event, and give what the people watching should see of it."""
        self._take_of_run(event)
        node = self._nodes.get(event.node)
        if node is None:
            return
        if event.kind is EventKind.START:
            node.counts.setdefault(EventKind.START, 0)
            node.counts[EventKind.START] += 1
            if self._is_of(event):
                yield Step(event.node, self._position(event))
            return
        if event.kind is EventKind.RETRY:
            yield Step(event.node, f"{self._position(event)} (trying again)")
            return
        node.counts[event.kind] = node.counts.get(event.kind, 0) + 1
        node.seconds += event.seconds
        if event.boot.get("state", "fits") != "fits":
            node.boots.append(BootStep.model_validate(event.boot))
        if event.kind is EventKind.CHANGED:
            node.changed_tasks.append(_label(event))
        elif event.kind is EventKind.FAILED:
            node.failure = _failure(event)
        elif event.kind is EventKind.UNREACHABLE:
            node.unreachable = True
            node.failure = _failure(event)

    def _take_of_run(self, event: Event) -> None:
        if event.kind is EventKind.STATS:
            self._stats = event.stats
        elif event.kind is EventKind.SAID:
            self.said.append(event.message)
        elif event.kind is EventKind.BATCH:  # the playbook has one play, so every batch before this one has ended
            for name, node in self._nodes.items():
                node.over = self.began(name)

    def began(self, name: str) -> bool:
        """Whether any task was begun or ended on the node, so that it may have changed."""
        counts = self._nodes[name].counts
        return bool(counts) and set(counts) != {EventKind.UNREACHABLE}

    def ended(self) -> bool:
        """Whether Ansible came to its own end and gave its counts."""
        return self._stats is not None

    def result(self, *, check: bool) -> tuple[NodeRun, ...]:
        """How each node ended.

        In a run that was cancelled, or that Ansible itself did not finish, a node of the last batch is `UNKNOWN` as
        soon as any task reached it: its last task may still be at work there.
        """
        return tuple(
            NodeRun(
                node=name,
                outcome=self._outcome(name, node, check=check),
                ok=node.counts.get(EventKind.OK, 0),
                changed=node.counts.get(EventKind.CHANGED, 0),
                skipped=node.counts.get(EventKind.SKIPPED, 0),
                failed=int(self._failed(name, node)),
                changed_tasks=tuple(node.changed_tasks),
                failure=node.failure if node.unreachable or self._failed(name, node) else None,
                seconds=round(node.seconds, 3),
                boots=() if check else tuple(node.boots),
            )
            for name, node in self._nodes.items()
        )

    def _outcome(self, name: str, node: _Node, *, check: bool) -> Outcome:
        if node.unreachable:
            return Outcome.UNREACHABLE
        if self._stats is None and not node.over:
            return Outcome.UNKNOWN if self.began(name) else Outcome.NOT_RUN
        if self._failed(name, node):
            return Outcome.FAILED
        if not node.counts:
            return Outcome.NOT_RUN
        changed = Outcome.WOULD_CHANGE if check else Outcome.CHANGED
        return changed if node.counts.get(EventKind.CHANGED) else Outcome.UNCHANGED

    def _failed(self, name: str, node: _Node) -> bool:
        """Whether a task failed for good: a failure that a ``rescue`` took care of does not count."""
        if self._stats is None:
            return bool(node.counts.get(EventKind.FAILED))
        return bool(self._stats.get("failures", {}).get(name))

    def _is_of(self, event: Event) -> bool:
        """Whether the task is of a role of this node; Ansible also names those it is going to skip."""
        roles = self._roles.get(event.node, ())
        return not roles or not event.role or event.role in roles

    def _position(self, event: Event) -> str:
        roles = list(self._roles.get(event.node, ()))
        if event.role in roles:
            return f"{_label(event)} ({roles.index(event.role) + 1}/{len(roles)})"
        return _label(event)


def _label(event: Event) -> str:
    # Ansible's own task before each role quotes the role's description at length.
    task = "validate | Ensure the variables are known" if event.task.startswith(SPEC_TASK) else event.task
    return f"{event.role} | {task}" if event.role else task


def _failure(event: Event) -> TaskFailure:
    hint = event.boot.get("remedy") or hint_for(event.message)
    if event.boot:
        return TaskFailure(role="reboot", task=event.boot["code"], message=event.message, hint=hint)
    return TaskFailure(role=event.role or "site.yml", task=event.task, message=event.message, hint=hint)
