"""Reads roles for the contract tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
ROLES = sorted(path.parent.parent for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
KEYWORDS = {
    *(
        "action",
        "always",
        "args",
        "async",
        "become",
        "become_exe",
        "become_user",
        "block",
        "changed_when",
        "check_mode",
    ),
    *("delay", "delegate_to", "diff", "environment", "failed_when", "ignore_errors", "ignore_unreachable", "listen"),
    *(
        "listen",
        "local_action",
        "loop",
        "loop_control",
        "name",
        "no_log",
        "notify",
        "poll",
        "register",
        "rescue",
        "retries",
    ),
    *("run_once", "tags", "throttle", "timeout", "until", "vars", "when"),
}


@dataclass(frozen=True)
class Task:
    """One task of a role: where it is, its keywords, its module and the module's arguments."""

    file: str
    body: dict[str, Any]

    @property
    def module(self) -> str:
        found = [key for key in self.body if key not in KEYWORDS and not key.startswith("with_")]
        return found[0] if len(found) == 1 else f"not one module: {found}"

    @property
    def arguments(self) -> dict[str, Any]:
        value = self.body.get(self.module)
        return value if isinstance(value, dict) else {"_raw": value}

    @property
    def label(self) -> str:
        return f"{self.file}: {self.body.get('name')}"


@dataclass(frozen=True)
class Role:
    """A role's directory."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = self.yaml("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        return options

    @property
    def defaults(self) -> dict[str, Any]:
        return self.yaml("defaults/main.yml") or {}

    def yaml(self, name: str) -> Any:
        path = self.path / name
        return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None

    def tasks(self, directory: str = "tasks") -> Iterator[Task]:
        for path in sorted((self.path / directory).glob("*.yml")):
            for body in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
                yield Task(f"{directory}/{path.name}", body)

    def texts(self, *directories: str) -> Iterator[tuple[str, str]]:
        """Name and text, without comment lines, of every file in these directories."""
        for directory in directories:
            for path in sorted(p for p in (self.path / directory).rglob("*") if p.is_file()):
                text = path.read_text(encoding="utf-8")
                yield f"{directory}/{path.name}", re.sub(r"(?m)^\s*#.*$|\{#.*?#\}", "", text)


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request: pytest.FixtureRequest) -> Role:
    """Every role of the repository, one after another."""
    return Role(request.param)


@pytest.fixture
def make_role(tmp_path: Path):
    """A role named ``demo`` in a scratch directory; keyword arguments replace files (None: leave it out)."""

    def make(**files: str | None) -> Role:
        sound = {
            "meta/argument_specs.yml": (
                "argument_specs: {main: {short_description: Demo, description: [Demo.], options: "
                "{demo_on: {type: bool, default: true, description: On.}}}}"
            ),
            "defaults/main.yml": "demo_on: true",
            "tasks/main.yml": "- {name: V, ansible.builtin.import_tasks: validate.yml}\n"
            "- {name: I, ansible.builtin.import_tasks: install_debian.yml}",
            "tasks/validate.yml": "- {name: validate | Ensure it, ansible.builtin.assert: {that: demo_on is boolean}}",
            "tasks/install_debian.yml": "- {name: install_debian | Ensure it, gpustrap_demo: {on: '{{ demo_on }}'}}",
        }
        for name, text in {**sound, **files}.items():
            if text is not None:
                path = tmp_path / "demo" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        return Role(tmp_path / "demo")

    return make
