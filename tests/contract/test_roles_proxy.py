"""Failure mode proxy-not-applied: whatever a role's modules fetch themselves goes through the site's proxy."""

from __future__ import annotations

import pytest
import yaml

from gpustrap.content import content_root

FETCHING = ("gpustrap_apt_repository", "gpustrap_conda", "gpustrap_rpm_key_file")
ROLES = content_root() / "roles"
TASKS = [
    pytest.param(path.parts[-3], task, id=f"{path.parts[-3]}-{path.name}-{module}")
    for path in sorted(ROLES.glob("*/tasks/*.yml"))
    for task in yaml.safe_load(path.read_text(encoding="utf-8")) or []
    for module in FETCHING
    if module in task
]


def test_there_are_such_tasks():
    assert len(TASKS) >= 7


@pytest.mark.parametrize(("role", "task"), TASKS)
def test_proxy_not_applied(role, task):
    assert task.get("environment") == f"{{{{ __{role}_environment }}}}"
    defaults = yaml.safe_load((ROLES / role / "defaults/main.yml").read_text(encoding="utf-8"))
    assert defaults[f"{role}_proxy"] == {}
