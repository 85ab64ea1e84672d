"""A task of a role that changes something Ansible's callback cannot read names what it manages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.content import content_root

OPAQUE = {"command", "shell", "raw", "script", "expect"}
READS = {
    "assert",
    "debug",
    "fail",
    "stat",
    "slurp",
    "set_fact",
    "setup",
    "include_tasks",
    "import_tasks",
    "meta",
    "getent",
}


def tasks_of(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        if "block" in item:
            for part in ("block", "rescue", "always"):
                yield from tasks_of(item.get(part, []))
        else:
            yield item


def module_of(task: dict[str, Any]) -> str:
    keywords = {"name", "when", "vars", "register", "loop", "notify", "tags", "become", "no_log", "changed_when"}
    named = [k for k in task if k not in keywords and (k.startswith(("ansible.", "gpustrap_")) or k in OPAQUE)]
    return named[0].rpartition(".")[2] if named else ""


def unnamed(tasks: list[dict[str, Any]]) -> list[str]:
    """Names of tasks that change what nobody can see."""
    bad = []
    for task in tasks_of(tasks):
        module = module_of(task)
        hidden = module in OPAQUE or (bool(task.get("no_log")) and module not in READS)
        if hidden and task.get("changed_when") is not False and not task.get("vars", {}).get("__claims"):
            bad.append(str(task.get("name")))
    return bad


def files() -> list[Path]:
    return sorted(p for part in ("tasks", "handlers") for p in content_root().glob(f"roles/*/{part}/*.yml"))


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(content_root())))
def test_every_task_that_hides_what_it_changes_names_it(path: Path) -> None:
    assert unnamed(yaml.safe_load(path.read_text()) or []) == []


def test_there_are_roles() -> None:
    assert len(files()) > 3


@pytest.mark.parametrize(
    ("task", "bad"),
    [
        ({"ansible.builtin.command": {"argv": ["x"]}}, True),
        ({"ansible.builtin.command": {"argv": ["x"]}, "changed_when": "__r.rc == 2"}, True),
        ({"ansible.builtin.command": {"argv": ["x"]}, "changed_when": False}, False),
        ({"ansible.builtin.shell": "x | y", "vars": {"__claims": [{"kind": "file", "name": "/x"}]}}, False),
        ({"ansible.builtin.copy": {"dest": "/x"}, "no_log": True}, True),
        ({"ansible.builtin.copy": {"dest": "/x"}}, False),
        ({"ansible.builtin.slurp": {"src": "/x"}, "no_log": True}, False),
    ],
)
def test_the_rule_itself(task: dict[str, Any], bad: bool) -> None:
    assert bool(unnamed([{"block": [{"name": "t", **task}]}])) is bad
