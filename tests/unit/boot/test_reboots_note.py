"""The note of a reboot that survives it."""

from __future__ import annotations

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import reboots
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import NodeError

NEXT = "22222222-2222-4222-8222-222222222222"


def test_the_same_is_not_begun_again_once_the_node_has_booted(tree):
    reboots.begin(tree.host(), "driver", "driver 595", "why")
    reboots.begin(tree.host(), "driver", "driver 595", "why")  # it never went down
    tree.text("proc/sys/kernel/random/boot_id", NEXT + "\n")
    with pytest.raises(NodeError, match=r"rebooted already at .* UTC, for driver 595, and that did not help"):
        reboots.begin(tree.host(), "driver", "driver 595", "why")
    reboots.begin(tree.host(), "driver", "driver 596", "why")
    reboots.begin(tree.host(), "kernel", "driver 595", "why")


def test_it_is_there_for_root_alone(tree):
    reboots.remember(tree.host(), "driver", "x")
    path = tree.root / "var/lib/gpustrap/reboots.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"driver": 1, "other": {}}', '{"driver": null}'])
def test_a_note_that_is_none_hinders_nothing(tree, text):
    reboots.remember(tree.host(), "kernel", "x")
    (tree.root / "var/lib/gpustrap/reboots.json").write_text(text)
    assert reboots.history(tree.host()) == {}
    reboots.begin(tree.host(), "driver", "driver 595", "why")
    assert list(reboots.history(tree.host())) == ["driver"]


def test_a_directory_that_others_can_write_is_refused(tree):
    reboots.remember(tree.host(), "kernel", "x")
    (tree.root / "var/lib/gpustrap").chmod(0o777)
    with pytest.raises(NodeError, match="can be written by others"):
        reboots.begin(tree.host(), "driver", "driver 595", "why")


@pytest.mark.parametrize(("stage", "target"), [("other", "x"), ("driver", "")])
def test_what_is_no_reboot_of_ours_is_refused(tree, stage, target):
    with pytest.raises(NodeError, match="a stage is one of"):
        reboots.begin(tree.host(), stage, target, "why")


def test_forgetting_what_was_never_noted_writes_nothing(tree):
    assert not reboots.forget(tree.host(), "driver")
    assert not (tree.root / "var/lib/gpustrap").exists()
