"""ansible-doc shows every module and filter of ours: description, options, and examples of the ones for users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpustrap.content import PACKAGE, ansible_config

PLUGINS = PACKAGE / "ansible_plugins"
FOR_USERS = {"gpustrap_facts", "gpustrap_plan"}


def documented(kind: str, names: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-doc"), "-t", kind, "--json", *names],
        env=os.environ | {"ANSIBLE_CONFIG": str(ansible_config())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("kind", "directory"), [("module", "modules"), ("filter", "filter")])
def test_every_plugin_is_documented(kind: str, directory: str) -> None:
    names = sorted(p.stem for p in (PLUGINS / directory).glob("gpustrap_*.py"))
    found = documented(kind, names)
    assert sorted(found) == names
    for name, page in found.items():
        assert page["doc"]["short_description"], name
        assert page["examples"] or name not in FOR_USERS, name
        assert page["return"] or name not in FOR_USERS, name


def test_the_action_has_a_page() -> None:
    assert {p.stem for p in (PLUGINS / "action").glob("*.py")} <= {p.stem for p in (PLUGINS / "modules").glob("*.py")}
    assert documented("module", ["gpustrap_plan"])["gpustrap_plan"]["doc"]["has_action"]
