"""How sure the choice of docker is."""

from __future__ import annotations

import pytest

from gpustrap.resolve.docker_packages import docker_packages

RHEL = {"distro": ("rhel", "9"), "driver": ("580", "open", "nvidia")}
APT = {"docker.io": ("28.2.2-0ubuntu1",)}


@pytest.mark.parametrize(
    ("fields", "request_", "expected"),
    [
        ({"can_have": APT}, {}, "verified"),  # the node's own apt has read what the catalog only remembers
        ({"offline": True}, {}, "recalled"),
        ({}, {"docker_origin": "upstream"}, "verified"),
        ({"distro": ("ubuntu", "26.04")}, {"docker_origin": "upstream"}, "recalled"),
        (RHEL, {"docker_version": "29.7.2-1.el9"}, "recalled"),  # its repository is from memory
    ],
)
def test_as_sure_as_the_least_sure_thing_it_rests_on(node, fields, request_, expected):
    _packages, (choice,), _problems = docker_packages(node(**fields).stack(**request_).inputs)
    assert choice.confidence == expected, choice
