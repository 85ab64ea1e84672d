"""Argument specs, defaults and use of variables hold together in every role."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ALL_ROLES = sorted(path.parent.parent.name for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
CODE = ("tasks", "templates", "handlers", "vars")
NAME = re.compile(r"(?<![A-Za-z0-9_.'/-])[a-z_][a-z0-9_]*(?![A-Za-z0-9_])")


def used(role, *directories: str) -> set[str]:
    """Words in the role's code that look like variables."""
    return {word for _file, text in role.texts(*directories) for word in NAME.findall(text)}


def specs_and_defaults(role) -> Iterator[str]:
    """A required variable has no default; every other has the same one in both places, and a sentence."""
    for name, option in role.options.items():
        if not name.startswith(f"{role.name}_"):
            yield f"{name} does not begin with the role's name"
        if not str(option.get("description", "")).rstrip().endswith("."):
            yield f"{name} is not described in a sentence"
        if option.get("required"):
            if name in role.defaults or "default" in option:
                yield f"{name} is required and has a default"
        elif name not in role.defaults or "default" not in option or option["default"] != role.defaults[name]:
            yield f"{name}: default {option.get('default')!r} of the spec, {role.defaults.get(name)!r} of defaults"
    for name in sorted(set(role.defaults) - set(role.options)):
        yield f"{name} has a default and no spec"


def use(role) -> Iterator[str]:
    """No variable is unknown, unused, or another role's; private ones are made in the role."""
    words = used(role, *CODE)
    public = {word for word in words if word.startswith(f"{role.name}_")}
    for name in sorted(public - set(role.options)):
        yield f"{name} is used and not in the spec"
    for name in sorted(set(role.options) - used(role, "tasks", "templates", "vars")):
        yield f"{name} is in the spec and not used"
    made = set(role.yaml("vars/main.yml") or {})
    for task in role.tasks():
        body = task.body
        made |= {str(body.get("register")), str(body.get("loop_control", {}).get("loop_var"))} | set(
            body.get("vars", {})
        )
    made -= {"None", "__claims"}
    for name in sorted(n for n in made if not n.startswith(f"__{role.name}_")):
        yield f"{name} is private and does not begin with __{role.name}_"
    for name in sorted(w for w in words if w.startswith("__") and w != "__claims" and w not in made):
        yield f"{name} is used and never made"
    for other in ALL_ROLES:
        if other != role.name:
            for name in sorted(w for w in words if re.match(rf"_*{other}_", w) and w not in public | made):
                yield f"{name} is another role's"


def validation(role) -> Iterator[str]:
    """What the spec neither casts nor checks, validate.yml does: booleans, numbers, choices."""
    checked = {
        word for file, text in role.texts("tasks") if file == "tasks/validate.yml" for word in NAME.findall(text)
    }
    for name, option in role.options.items():
        if (option["type"] in {"bool", "int"} or "choices" in option) and name not in checked:
            yield f"{name} ({option['type']}) is not asserted in validate.yml"


RULES = (specs_and_defaults, use, validation)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_role_keeps(role, rule):
    assert list(rule(role)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_sound_role_passes(make_role, rule):
    assert list(rule(make_role())) == []


SPEC = "argument_specs: {{main: {{short_description: D, description: [D.], options: {{{}}}}}}}"
INSTALL, VALIDATE = "tasks/install_debian.yml", "tasks/validate.yml"
ON = "demo_on: {type: bool, default: true, description: On.}"
BROKEN = [
    (specs_and_defaults, {"defaults/main.yml": "demo_on: false"}, "default True of the spec, False"),
    (specs_and_defaults, {"defaults/main.yml": "{demo_on: true, demo_off: 1}"}, "demo_off has a default and no spec"),
    (
        specs_and_defaults,
        {"meta/argument_specs.yml": SPEC.format("demo_on: {type: bool, required: true, description: On.}")},
        "required and has a default",
    ),
    (
        specs_and_defaults,
        {"meta/argument_specs.yml": SPEC.format("demo_on: {type: bool, default: true, description: On}")},
        "not described in a sentence",
    ),
    (use, {INSTALL: "- {name: x, gpustrap_demo: {on: '{{ demo_onn }}'}}"}, "demo_onn is used and not in the spec"),
    (
        use,
        {"meta/argument_specs.yml": SPEC.format(ON + ", demo_x: {type: str, default: a, description: X.}")},
        "demo_x is in the spec and not used",
    ),
    (use, {INSTALL: "- {name: x, gpustrap_demo: {on: '{{ docker_users }}'}}"}, "docker_users is another role's"),
    (use, {INSTALL: "- {name: x, gpustrap_demo: {}, register: result}"}, "result is private and does not begin"),
    (use, {INSTALL: "- {name: x, gpustrap_demo: {}, when: __demo_x.y}"}, "__demo_x is used and never made"),
    (validation, {VALIDATE: "- {name: x, ansible.builtin.assert: {that: true}}"}, "demo_on (bool) is not asserted"),
]


@pytest.mark.parametrize(("rule", "changed", "said"), BROKEN, ids=[f"{r.__name__}-{s}" for r, _, s in BROKEN])
def test_rule_catches(make_role, rule, changed, said):
    assert any(said in problem for problem in rule(make_role(**changed)))


def test_readmes_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "docs/generate/role_readmes.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stderr}\nrun: python docs/generate/role_readmes.py"
