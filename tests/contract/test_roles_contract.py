"""Every role keeps the rules of docs/roles.md; each rule is also shown to catch a role that breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

REQUIRED_FILES = {"main.yml", "validate.yml"}
ALLOWED_FILES = re.compile(r"main|validate|install_[a-z]+|configure|service")
COMMANDS = {"ansible.builtin.command", "ansible.builtin.shell", "ansible.builtin.raw", "ansible.builtin.script"}
WRITERS = {"ansible.builtin.copy", "ansible.builtin.template", "ansible.builtin.get_url", "ansible.builtin.blockinfile"}
WRITING_WORDS = {"add", "create", "disable", "enable", "install", "purge", "remove", "restart", "set", "start", "stop"}
WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def file_set(role) -> Iterator[str]:
    """Fixed files, no dependencies."""
    names = {path.name for path in (role.path / "tasks").iterdir()}
    for name in sorted(REQUIRED_FILES - names):
        yield f"tasks/{name} is missing"
    if not any(name.startswith("install_") for name in names):
        yield "tasks/install_<family>.yml is missing"
    for name in sorted(names):
        if not ALLOWED_FILES.fullmatch(name.removesuffix(".yml")):
            yield f"tasks/{name} is not one of the fixed files"
    if (role.yaml("meta/main.yml") or {}).get("dependencies"):
        yield "meta/main.yml has dependencies"


def main_imports(role) -> Iterator[str]:
    """main.yml holds static imports of all files, validate.yml first, and nothing else."""
    names = {path.name for path in (role.path / "tasks").iterdir()} - {"main.yml"}
    tasks = [task for task in role.tasks() if task.file == "tasks/main.yml"]
    imported = [task.arguments.get("_raw") for task in tasks]
    for task in tasks:
        if task.module != "ansible.builtin.import_tasks":
            yield f"{task.label}: main.yml only imports"
    if imported[:1] != ["validate.yml"]:
        yield "tasks/main.yml does not validate first"
    if set(imported) != names:
        yield f"tasks/main.yml imports {imported}, there are {sorted(names)}"


def task_names(role) -> Iterator[str]:
    """``configure | Ensure …``, so that a log says which file a task is in."""
    for task in role.tasks():
        stem = task.file.removeprefix("tasks/").removesuffix(".yml")
        if stem != "main" and not re.match(rf"{stem} \| Ensure \S", str(task.body.get("name"))):
            yield f"{task.label}: not named '{stem} | Ensure …'"


def modules(role) -> Iterator[str]:
    """ansible.builtin, by its full name, and our own."""
    for task in [*role.tasks(), *role.tasks("handlers")]:
        if not re.fullmatch(r"ansible\.builtin\.[a-z0-9_]+|gpustrap_[a-z0-9_]+", task.module):
            yield f"{task.label}: module {task.module}"
        if "include" in task.module:
            yield f"{task.label}: imports are static"


def honesty(role) -> Iterator[str]:
    """Nothing ignored; ``changed_when: false`` only on reads; a changing command names its claims."""
    for task in [*role.tasks(), *role.tasks("handlers")]:
        body = task.body
        if {"ignore_errors", "ignore_unreachable"} & set(body):
            yield f"{task.label}: ignores errors"
        read = body.get("changed_when") is False
        words = set(WORDS.findall(str(task.arguments)))
        if read and (task.module not in COMMANDS or "register" not in body or words & WRITING_WORDS):
            yield f"{task.label}: changed_when false on what is no read"
        if task.module in COMMANDS and not read and "__claims" not in body.get("vars", {}):
            yield f"{task.label}: a changing command without vars.__claims"
        if body.get("no_log") and "__claims" not in body.get("vars", {}):
            yield f"{task.label}: no_log without vars.__claims"
        if task.module == "ansible.builtin.command" and "argv" not in task.arguments:
            yield f"{task.label}: command without argv"
        if task.module == "ansible.builtin.shell" and "|" not in str(task.arguments):
            yield f"{task.label}: shell without a pipe"


def files(role) -> Iterator[str]:
    """Files have an owner and a quoted mode, templates a header that names us."""
    for task in role.tasks():
        arguments = task.arguments
        writes = task.module in WRITERS or (
            task.module == "ansible.builtin.file" and arguments.get("state") not in {"absent", "link"}
        )
        mode = arguments.get("mode")
        if (writes or mode is not None) and not re.fullmatch(r"0[0-7]{3}", str(mode)):
            yield f"{task.label}: mode {mode!r} is not a quoted 0644"
        if mode is not None and not isinstance(mode, str):
            yield f"{task.label}: mode is not quoted"
        if writes and not {"owner", "group"} <= set(arguments):
            yield f"{task.label}: no owner and group"
    for path in sorted((role.path / "templates").glob("*")):
        if "Managed by gpustrap" not in path.read_text(encoding="utf-8").partition("\n")[0]:
            yield f"templates/{path.name}: first line does not say 'Managed by gpustrap'"


def apt(role) -> Iterator[str]:
    """apt waits for locks, never takes recommended packages by accident, never looks up the latest."""
    for task in [*role.tasks(), *role.tasks("handlers")]:
        if task.module != "ansible.builtin.apt":
            continue
        if "lock_timeout" not in task.arguments:
            yield f"{task.label}: apt without lock_timeout"
        if "install_recommends" not in task.arguments:
            yield f"{task.label}: apt without install_recommends"
        if task.arguments.get("state") == "latest" or "upgrade" in task.arguments:
            yield f"{task.label}: apt decides the version"
        if "loop" in task.body:
            yield f"{task.label}: a package list is one task"


RULES: tuple[Callable[..., Iterator[str]], ...] = (file_set, main_imports, task_names, modules, honesty, files, apt)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_role_keeps(role, rule):
    assert list(rule(role)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_sound_role_passes(make_role, rule):
    assert list(rule(make_role())) == []


INSTALL = "tasks/install_debian.yml"
BROKEN = [
    (file_set, {"tasks/validate.yml": None}, "tasks/validate.yml is missing"),
    (file_set, {INSTALL: None}, "install_<family>.yml is missing"),
    (file_set, {"tasks/extra.yml": "[]"}, "tasks/extra.yml is not one of"),
    (file_set, {"meta/main.yml": "dependencies: [other]"}, "has dependencies"),
    (main_imports, {"tasks/main.yml": "- {name: X, ansible.builtin.debug: {msg: x}}"}, "main.yml only imports"),
    (main_imports, {"tasks/configure.yml": "[]"}, "tasks/main.yml imports"),
    (task_names, {INSTALL: "- {name: Install it, gpustrap_demo: {}}"}, "not named 'install_debian | Ensure"),
    (modules, {INSTALL: "- {name: x, community.general.snap: {}}"}, "module community.general.snap"),
    (modules, {INSTALL: "- {name: x, apt: {}}"}, "module apt"),
    (modules, {INSTALL: "- {name: x, ansible.builtin.include_tasks: y.yml}"}, "imports are static"),
    (honesty, {INSTALL: "- {name: x, gpustrap_demo: {}, ignore_errors: true}"}, "ignores errors"),
    (honesty, {INSTALL: "- {name: x, gpustrap_demo: {}, changed_when: false, register: __demo_x}"}, "no read"),
    (
        honesty,
        {INSTALL: "- {name: x, ansible.builtin.command: {argv: [snap, remove, x]}, changed_when: false, register: y}"},
        "no read",
    ),
    (honesty, {INSTALL: "- {name: x, ansible.builtin.command: {argv: [snap, remove, x]}}"}, "without vars.__claims"),
    (honesty, {INSTALL: "- {name: x, gpustrap_demo: {}, no_log: true}"}, "no_log without vars.__claims"),
    (honesty, {INSTALL: "- {name: x, ansible.builtin.command: {cmd: id}, vars: {__claims: []}}"}, "without argv"),
    (honesty, {INSTALL: "- {name: x, ansible.builtin.shell: id, vars: {__claims: []}}"}, "shell without a pipe"),
    (files, {INSTALL: "- {name: x, ansible.builtin.copy: {dest: /x, owner: a, group: a}}"}, "mode None"),
    (files, {INSTALL: "- {name: x, ansible.builtin.file: {path: /x, mode: 0755, owner: a, group: a}}"}, "not quoted"),
    (files, {INSTALL: "- {name: x, ansible.builtin.template: {dest: /x, mode: '0644'}}"}, "no owner and group"),
    (files, {"templates/x.j2": "a: b\n"}, "first line"),
    (apt, {INSTALL: "- {name: x, ansible.builtin.apt: {name: x, install_recommends: false}}"}, "lock_timeout"),
    (apt, {INSTALL: "- {name: x, ansible.builtin.apt: {name: x, lock_timeout: 1}}"}, "install_recommends"),
    (apt, {INSTALL: "- {name: x, ansible.builtin.apt: {name: x, state: latest}}"}, "decides the version"),
    (apt, {INSTALL: "- {name: x, ansible.builtin.apt: {name: '{{ i }}'}, loop: [x]}"}, "one task"),
]


@pytest.mark.parametrize(("rule", "changed", "said"), BROKEN, ids=[f"{r.__name__}-{s}" for r, _, s in BROKEN])
def test_rule_catches(make_role, rule, changed, said):
    assert any(said in problem for problem in rule(make_role(**changed)))
