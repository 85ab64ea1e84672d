"""What Ansible said, reduced to what we keep: no arguments but a whitelist, no output of ``no_log`` tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from gpustrap.converge.failures import failure_message
from gpustrap.converge.masking import Mask


class EventKind(StrEnum):
    """The events that matter; everything else of ansible-runner is dropped."""

    BATCH = "batch"  # the next nodes begin; with --serial there are several batches
    START = "start"  # a task began on a node
    OK = "ok"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"
    IGNORED = "ignored"  # failed, and the playbook goes on
    ITEM_FAILED = "item-failed"
    UNREACHABLE = "unreachable"
    RETRY = "retry"
    STATS = "stats"
    SAID = "said"  # Ansible's own warnings and errors


_RUNNER = {
    "playbook_on_play_start": EventKind.BATCH,
    "runner_on_start": EventKind.START,
    "runner_on_ok": EventKind.OK,
    "runner_on_skipped": EventKind.SKIPPED,
    "runner_on_failed": EventKind.FAILED,
    "runner_item_on_failed": EventKind.ITEM_FAILED,
    "runner_on_unreachable": EventKind.UNREACHABLE,
    "runner_retry": EventKind.RETRY,
    "playbook_on_stats": EventKind.STATS,
}
# Ansible's own words come as events of other names, mostly "verbose"; how they begin tells them from the rest.
_SAID = ("[WARNING]", "[ERROR]", "ERROR!")
_WITH_MESSAGE = {EventKind.FAILED, EventKind.IGNORED, EventKind.ITEM_FAILED, EventKind.UNREACHABLE}
_REBOOT = "gpustrap_reboot"
_BOOT = ("stage", "state", "code", "reason", "evidence", "remedy", "target", "seconds", "staged")
_COUNTS = ("ok", "changed", "failures", "dark", "skipped", "rescued", "ignored", "processed")

# Arguments that name a thing and never hold its content.
ARGUMENTS = ("path", "dest", "name", "state", "owner", "group", "mode", "enabled", "masked")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of events.jsonl.

    Attributes:
        kind: What happened.
        time: When, UTC, ISO 8601, by the controller's clock.
        node: Inventory name; empty for the run as a whole.
        role: The role of the task, if any.
        task: The task's name.
        action: The module.
        seconds: How long the task took on this node.
        message: For failures: the tool's own words. For `SAID`: Ansible's.
        arguments: What the task was about: `ARGUMENTS` only.
        stats: For `STATS`: Ansible's own counts, ``{"ok": {node: n}, …}``.
        boot: Of a step that decides about reboots: what it decided.
    """

    kind: EventKind
    time: str = ""
    node: str = ""
    role: str = ""
    task: str = ""
    action: str = ""
    seconds: float = 0.0
    message: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    boot: Mapping[str, Any] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """For JSON: without what is empty."""
        return {k: v for k, v in asdict(self).items() if v}


def read_event(raw: Mapping[str, Any], mask: Mask) -> Event | None:
    """Reduce an event of ansible-runner, or drop it.

    Args:
        raw: The event as ansible-runner's handler gets it.
        mask: Applied to every text that may hold output of a tool.
    """
    kind = _RUNNER.get(str(raw.get("event")))
    said = str(raw.get("stdout", "")).strip()
    if kind is None and said.startswith(_SAID):
        kind = EventKind.SAID
    if kind is None:
        return None
    data = _mapping(raw.get("event_data"))
    result = _mapping(data.get("res"))
    if kind is EventKind.OK and _changed(raw, result):
        kind = EventKind.CHANGED
    if kind is EventKind.FAILED and data.get("ignore_errors"):
        kind = EventKind.IGNORED
    message = ""
    if kind in _WITH_MESSAGE:
        message = mask(failure_message(result))
    elif kind is EventKind.SAID:
        message = mask(said)
    return Event(
        kind=kind,
        time=str(raw.get("created", "")),
        node=str(data.get("host", "")),
        role=str(data.get("role", "")).rpartition(".")[2],
        task=_task_name(data),
        action=str(data.get("task_action", "")),
        seconds=round(float(data.get("duration") or 0.0), 3),
        message=message,
        arguments=_arguments(result, mask) if kind is not EventKind.START else {},
        stats=_stats(data) if kind is EventKind.STATS else {},
        boot=_boot(data, result, mask),
    )


def _changed(raw: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Whether the task changed something. Of a ``no_log`` task only what Ansible printed still says so."""
    if "censored" in result:
        return str(raw.get("stdout", "")).lstrip().startswith("changed:")
    return bool(result.get("changed"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _task_name(data: Mapping[str, Any]) -> str:
    """The task's own name; Ansible puts the role before it, which we keep apart."""
    name = str(data.get("task", ""))
    role = str(data.get("role", ""))
    return name.removeprefix(f"{role} : ") if role else name


def _arguments(result: Mapping[str, Any], mask: Mask) -> dict[str, Any]:
    given = _mapping(_mapping(result.get("invocation")).get("module_args"))
    found: dict[str, Any] = {}
    for key in ARGUMENTS:
        value = given.get(key)
        if isinstance(value, str):
            found[key] = mask(value)
        elif isinstance(value, bool | int):
            found[key] = value
        elif isinstance(value, list) and all(isinstance(v, str) for v in value):
            found[key] = [mask(v) for v in value]
    return found


def _boot(data: Mapping[str, Any], result: Mapping[str, Any], mask: Mask) -> dict[str, Any]:
    if str(data.get("task_action", "")).rpartition(".")[2] != _REBOOT:
        return {}
    said = _mapping(result.get("boot"))
    return {k: mask(v) if isinstance(v, str) else v for k in _BOOT if isinstance(v := said.get(k), str | int)}


def _stats(data: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {k: {str(n): int(c) for n, c in _mapping(data.get(k)).items()} for k in _COUNTS}
