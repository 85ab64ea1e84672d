"""Environments among what the probe says is already there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host
from gpustrap.ansible_plugins.module_utils.gpustrap_node.installs import install_facts
from gpustrap.ansible_plugins.module_utils.gpustrap_node.main import main

LOCK = "0123456789abcdef"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The root of a node with a complete environment, and with one that was never completed."""
    for name in ("torch", "half"):
        place = tmp_path / "data/envs" / name
        (place / LOCK / "bin").mkdir(parents=True)
        (place / "current").symlink_to(LOCK)
    marker = {"name": "torch", "lock": LOCK, "framework": "pytorch", "version": "2.14.0", "parts": {}}
    (tmp_path / "data/envs/torch" / LOCK / ".gpustrap.json").write_text(json.dumps(marker))
    return tmp_path


def test_complete_ones_are_told_with_the_lock_they_were_built_from(built: Path) -> None:
    rows = [row for row in install_facts(Host(str(built)), {}, "/data/envs") if row["what"] == "environment"]
    expected = {"version": "pytorch 2.14.0", "origin": f"lock {LOCK}", "path": "/data/envs/torch"}
    assert rows == [{"what": "environment", **expected}]


def test_they_are_looked_for_below_their_prefix_only(built: Path) -> None:
    assert [row for row in install_facts(Host(str(built)), {}) if row["what"] == "environment"] == []


def test_a_prefix_that_is_no_path_is_a_bad_request() -> None:
    assert main({"verb": "facts", "args": {"environments": "envs"}})["error"]["code"] == "bad-request"
