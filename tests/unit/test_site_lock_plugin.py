"""The inventory plugin: role variables from the lock, as ansible-inventory and ansible-playbook see them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpustrap.content import ansible_config
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.site import Site
from gpustrap.site.lockfile import write_lock

ODD = "{{ lookup('pipe', 'touch /nowhere') }}"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.inventory.mkdir()
    (site.inventory / "hosts.yml").write_text("all: {hosts: {n1: {}, unplanned: {}}}\n")
    roles = {
        "docker": {"docker_users": ["ann"], "docker_daemon": {"odd": ODD}},
        "conda": {"conda_prefix": "/opt/conda"},
    }
    entry = NodeLock(request_digest="r", system_digest="s", os="debian 13", choices=(), roles=roles)
    entry = entry.model_copy(update={"pending": {"nvidia_driver": {"nvidia_driver_branch": "580"}}})
    write_lock(site, Lock(tool="t", catalog="c", nodes={"n1": entry, "removed": entry}))
    return site


def ansible(program: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ANSIBLE_CONFIG": str(ansible_config()), "ANSIBLE_NOCOLOR": "1"}
    path = str(Path(sys.executable).parent / program)
    return subprocess.run([path, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def listed(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    sources = ("-i", str(site.inventory), "-i", str(site.lock))
    return ansible("ansible-inventory", *sources, "--list", *words, cwd=site.root)


def test_nodes_of_the_inventory_get_their_roles_and_no_others_appear(site: Site) -> None:
    done = listed(site)
    assert done.returncode == 0, done.stderr
    hosts = json.loads(done.stdout, object_hook=lambda d: d.get("__ansible_unsafe", d))["_meta"]["hostvars"]
    assert set(hosts) <= {"n1", "unplanned"}
    assert hosts["n1"]["gpustrap_roles"] == ["docker", "conda"]
    assert hosts["n1"]["docker_users"] == ["ann"]
    assert hosts["n1"]["conda_prefix"] == "/opt/conda"
    assert "gpustrap_roles" not in hosts.get("unplanned", {})
    assert "removed" not in done.stdout
    assert "nvidia_driver" not in done.stdout, "no role of this version takes what is pending"


def test_values_are_never_templated(site: Site) -> None:
    play = site.root / "play.yml"
    play.write_text(
        "- hosts: n1\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.assert:\n        that: docker_daemon.odd is search('lookup')\n"
        "    - ansible.builtin.debug:\n        var: docker_daemon\n"
    )
    done = ansible("ansible-playbook", "-i", "inventory", "-i", site.lock.name, "play.yml", cwd=site.root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "touch /nowhere" in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plugin: gpustrap_lock\nversion: 2\nnodes: {}\n", "has version 2, this gpustrap reads 1"),
        ("a: [\n", "cannot be read"),
        ("plugin: gpustrap_lock\nversion: 1\nnodes: {n1: {roles: {docker: 7}}}\n", "was edited"),
        ("plugin: gpustrap_lock\nversion: 1\nnodes: []\n", "was edited"),
    ],
)
def test_what_is_no_lock_ends_the_run(site: Site, text: str, words: str) -> None:
    site.lock.write_text(text)
    done = listed(site)
    assert done.returncode != 0
    assert words in done.stderr


def test_the_inventory_comes_first(site: Site) -> None:
    done = ansible("ansible-inventory", "-i", str(site.lock), "--list", cwd=site.root)
    assert done.returncode != 0
    assert "name the inventory before the lock" in done.stderr
