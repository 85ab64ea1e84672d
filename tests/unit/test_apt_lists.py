"""Plan reads today's package lists; which nodes need that."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import apt_lists
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host


def lists(root: Path, age: float | None) -> Host:
    """A machine whose lists were updated `age` seconds ago; None: never."""
    directory = root / "var/lib/apt/lists"
    directory.mkdir(parents=True)
    if age is not None:
        (directory / "archive_dists_trixie_InRelease").touch()
        for path in (directory / "archive_dists_trixie_InRelease", directory):
            os.utime(path, (time.time() - age,) * 2)
    return Host(str(root))


@pytest.mark.parametrize(("age", "expected"), [(None, True), (3600, False), (3 * 24 * 3600, True)])
def test_lists_that_are_missing_or_older_than_a_day_are_outdated(
    tmp_path: Path, age: float | None, expected: bool
) -> None:
    assert apt_lists.outdated(lists(tmp_path, age)) is expected


def test_a_release_file_older_than_the_update_does_not_make_the_lists_old(tmp_path: Path) -> None:
    host = lists(tmp_path, 60)
    os.utime(tmp_path / "var/lib/apt/lists/archive_dists_trixie_InRelease", (1, 1))
    os.utime(tmp_path / "var/lib/apt/lists")
    assert not apt_lists.outdated(host)


def test_a_recorded_tree_fetches_nothing(tmp_path: Path) -> None:
    with apt_lists.fresh(lists(tmp_path, None)) as options:
        assert options == []
