"""What a node sends is of a size to reckon with, or it is refused as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from gpustrap.commands.inspect import check
from gpustrap.errors import GpustrapError
from gpustrap.model.facts import Facts
from gpustrap.model.ledger import DriftItem, Resource

SOUND = {"os": {"id": "debian", "architecture": "x86_64"}, "kernel": {"running": "6"}}


@pytest.mark.parametrize(
    "sent",
    [
        '{"time": {"epoch": 1e999}}',
        '{"time": {"epoch": -1e999}}',
        '{"time": {"epoch": 1%s}}' % ("0" * 400),
        '{"time": {"epoch": "1e999"}}',
        '{"time": {"epoch": "nan"}}',
        '{"memory": {"total": 1%s}}' % ("0" * 400),
        '{"memory": {"total": "1%s"}}' % ("0" * 400),
        '{"filesystems": [{"mount": "/", "size": 1e30, "free": 1}]}',
        '{"pci": [{"address": "a", "vendor": "v", "device": "d", "link_speed": 1e999}]}',
    ],
)
def test_infinite_and_huge_numbers_are_one_nodes_trouble(sent: str) -> None:
    """1e999 is JSON: as the time of one node it broke inspect for all of them."""
    answer = check("n1", {**SOUND, **json.loads(sent)}, (0.0, 1.0))
    assert isinstance(answer, GpustrapError)
    assert answer.problems[0].code == "probe-answer-invalid"


def test_numbers_of_real_machines_are_taken() -> None:
    sizes = {"mount": "/", "size": 2**60, "free": 2**59, "inodes": 2**64 - 1}  # NFS says so when it has no limit
    facts = Facts.model_validate({**SOUND, "filesystems": [sizes], "time": {"epoch": 1.8e9}})
    assert facts.filesystems[0].inodes == 2**64 - 1


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "state", [{"n": json.loads("1e999")}, {"n": [10**400]}, deep(5000)], ids=["inf", "int", "deep"]
)
def test_states_of_any_content_are_looked_through(state: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Resource.model_validate({"kind": "file", "name": "n", "role": "r", "state": state})
    with pytest.raises(ValidationError):
        DriftItem.model_validate({"kind": "file", "name": "n", "role": "r", "found": state})
