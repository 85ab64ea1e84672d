"""A node behind a jump host: every verb goes the same way, with the site's key and the site's known hosts alone.

The node behind is the jump host itself under an address that is another machine here: 127.0.0.1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.model.site import Site


@pytest.fixture(scope="module")
def bastion(lab: Lab, node_names: Iterator[str]) -> Iterator[LabNode]:
    node = lab.up([NodeSpec(next(node_names))])[0]
    yield node
    lab.remove(node.name)


def call(site: Site, node: LabNode, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "gpustrap", words[0], "--site", str(site.root), "--format", "json", *words[1:]]
    environment = os.environ | {"GPUSTRAP_SSH_PASSWORD": node.password}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_node_behind_a_jump_host_is_enrolled_planned_applied_and_compared(
    bastion: LabNode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("jump")
    site = Site(directory / "my site")
    config = directory / "ssh_config"
    config.write_text(f"Host door\n  HostName {bastion.address}\n  User {bastion.user}\n")
    behind = {"ansible_host": "127.0.0.1", "ansible_user": bastion.user}
    hosts = {
        "bastion": {"ansible_host": bastion.address, "ansible_user": bastion.user},
        "by-argument": behind | {"ansible_ssh_common_args": f"-o ProxyJump={bastion.user}@{bastion.address}"},
        "by-config": behind | {"ansible_port": 22, "ansible_ssh_common_args": f"-F {config} -J door"},
    }
    site.inventory.mkdir(parents=True)
    inventory = {"all": {"hosts": hosts, "vars": {"gpustrap_docker": False, "gpustrap_conda": False}}}
    (site.inventory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    call(site, bastion, "enroll", "--accept-new", "bastion")
    for name in ("by-argument", "by-config"):
        call(site, bastion, "enroll", "--accept-new", name)
        call(site, bastion, "plan", name)
        (node,) = call(site, bastion, "apply", "--no-verify", name)["nodes"]
        assert node["outcome"] in {"changed", "unchanged"}
        assert call(site, bastion, "drift", name)["nodes"][0]["in_sync"]
