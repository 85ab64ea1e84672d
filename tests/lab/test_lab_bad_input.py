"""Bad input and bad luck, through the program as a user calls it: what is said, and that the node loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.model.node import Access, Escalation
from gpustrap.model.site import Site
from gpustrap.site.access import save_access

LIMIT = 900  # seconds; a small machine with other work takes minutes to install docker
HOLD_LOCK = (
    "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(300)"
)
WAITS = "Ensure apt is healthy"  # the first task that waits for the lock
DAEMON_JSON = "/etc/docker/daemon.json"
USERS_OWN = {"debug": True, "shutdown-timeout": 7}  # was there before docker was
# What a refused run may not have touched: every file of /etc and /opt, every package.
PICTURE = "find /etc /opt /var/lib/gpustrap -xdev -type f -exec sha256sum {} + 2>/dev/null | sort; dpkg-query -W"


@dataclass
class Ran:
    """One call of the program."""

    rc: int
    stdout: str
    stderr: str

    def node(self, name: str) -> dict[str, Any]:
        assert self.stdout, self.stderr
        return next(n for n in json.loads(self.stdout)["nodes"] if n.get("node", n.get("name")) == name)


@dataclass
class World:
    """A site with a node that was planned, and one that was enrolled once and does not answer any more."""

    site: Site
    lab_node: LabNode
    gone: str

    @property
    def name(self) -> str:
        return self.lab_node.name

    def call(self, verb: str, *words: str, at: str = "", then: Callable[[], None] = lambda: None) -> Ran:
        """Run a verb; `then` is called when progress says `at`."""
        command = [sys.executable, "-m", "gpustrap", verb, "--site", str(self.site.root), "--format", "json", *words]
        environment = os.environ | {"GPUSTRAP_SSH_PASSWORD": self.lab_node.password}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            said = ""
            assert process.stderr is not None
            for line in process.stderr if at else ():
                said += line
                if at in line:
                    then()
                    break
            stdout, rest = process.communicate(timeout=LIMIT)
        ran = Ran(process.returncode, stdout, said + rest)
        assert "Traceback" not in ran.stdout + ran.stderr
        assert self.lab_node.password not in ran.stdout + ran.stderr
        return ran

    def sh(self, script: str) -> str:
        done = self.lab_node.exec(script)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def write(self, path: Path, content: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")


@pytest.fixture(scope="module")
def world(lab: Lab, node_names: Iterator[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    node = lab.up([NodeSpec(next(node_names), "debian13")])[0]
    world = World(Site(tmp_path_factory.mktemp("bad") / "site"), node, "gone")
    hosts = {
        node.name: {"ansible_host": node.address, "ansible_user": node.user},
        world.gone: {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_user": node.user},
    }
    world.write(world.site.inventory / "hosts.yml", {"all": {"hosts": hosts, "vars": {"gpustrap_conda": False}}})
    save_access(world.site, world.gone, Access(escalation=Escalation.NOPASSWD))
    for words in (("enroll", "--accept-new", "--passwordless-sudo", node.name), ("plan", node.name)):
        done = world.call(*words)
        assert done.rc == 0, done.stderr
    yield world
    lab.remove(node.name)


@pytest.fixture
def untouched(world: World) -> Iterator[None]:
    """What this test does may change nothing on the node."""
    before = world.sh(PICTURE)
    yield
    assert world.sh(PICTURE) == before


@pytest.mark.usefixtures("untouched")
def test_a_broken_inventory_is_told_with_file_and_line(world: World) -> None:
    broken = world.site.inventory / "more.yml"
    world.write(broken, "all:\n  hosts:\n    n9: {ansible_host: [}\n")
    try:
        ran = world.call("apply")
    finally:
        broken.unlink()
    assert (ran.rc, ran.stdout) == (2, "")
    assert "inventory/more.yml:3" in ran.stderr
    assert "Next: correct the file" in ran.stderr
    assert "(inventory-broken)" in ran.stderr


@pytest.mark.usefixtures("untouched")
def test_a_misspelt_variable_is_refused_with_the_right_name(world: World) -> None:
    variables = world.site.inventory / "host_vars" / f"{world.name}.yml"
    world.write(variables, {"gpustrap_docker_dameon": {}})
    try:
        ran = world.call("apply")
    finally:
        variables.unlink()
    assert (ran.rc, ran.stdout) == (2, "")
    assert f"inventory/host_vars/{world.name}.yml" in ran.stderr
    assert "there is no variable gpustrap_docker_dameon; did you mean gpustrap_docker_daemon?" in ran.stderr
    assert "Next: rename it to gpustrap_docker_daemon" in ran.stderr


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("place", ["/var/cache/apt", "/var/lib/docker"])
def test_a_full_disk_is_refused_before_anything_is_changed(world: World, place: str) -> None:
    """Each place apt and docker write to may be a filesystem of its own."""
    world.sh(f"mkdir -p {place} && mount -t tmpfs -o size=64m tmpfs {place}")
    try:
        ran = world.call("apply", world.name)
    finally:
        world.sh(f"umount {place}")
    node = ran.node(world.name)
    assert (ran.rc, node["outcome"], node["failure"]["task"]) == (3, "not-run", "disk-full")
    assert f"the filesystem {place} has 64 MiB free" in node["failure"]["message"]
    assert f"make room on {place} of {world.name}" in node["failure"]["hint"]


def test_one_unreachable_node_and_a_held_lock_stop_nothing(world: World) -> None:
    """The other package manager is named and waited for; then the node is brought to its lock all the same."""
    world.sh(f"mkdir -p /etc/docker && echo '{json.dumps(USERS_OWN)}' >{DAEMON_JSON}")
    world.sh(f'systemd-run --quiet --unit=holder /usr/bin/python3 -c "{HOLD_LOCK}"')
    pid = world.sh("systemctl show --property=MainPID --value holder").strip()
    waiting: list[str] = []

    def release() -> None:
        time.sleep(4)
        waiting.append(world.sh("systemctl is-active holder; dpkg-query -W docker.io 2>&1 || true"))
        world.sh("systemctl stop holder")

    try:
        inspected = world.call("inspect", world.name)
        ran = world.call("apply", "--no-verify", at=WAITS, then=release)
    finally:
        world.sh("systemctl stop holder || true")
    (held,) = inspected.node(world.name)["facts"]["package_manager"]["locks"]
    assert (held["pid"], held["path"]) == (int(pid), "/var/lib/dpkg/lock-frontend")
    assert held["command"].startswith("/usr/bin/python3 -c import fcntl")
    assert f"(pid {pid}) holds /var/lib/dpkg/lock-frontend; the roles wait" in ran.stderr
    assert waiting == ["active\ndpkg-query: no packages found matching docker.io\n"]

    assert ran.rc == 4, ran.stderr
    gone = ran.node(world.gone)
    assert (gone["outcome"], gone["failure"]["task"]) == ("unreachable", "unreachable")
    assert "127.0.0.1:1" in gone["failure"]["message"]
    assert "Connection refused" in gone["failure"]["message"]
    assert world.gone in gone["failure"]["hint"]

    assert ran.node(world.name)["outcome"] == "changed"
    assert world.sh("systemctl is-active docker").strip() == "active"
    assert USERS_OWN.items() <= json.loads(world.sh(f"cat {DAEMON_JSON}")).items()


def test_an_interrupted_dpkg_is_repaired(world: World) -> None:
    world.sh("touch /var/lib/dpkg/updates/0001")
    ran = world.call("apply", "--no-verify", "--tags", "ubuntu_server", world.name)
    node = ran.node(world.name)
    assert (ran.rc, node["outcome"], node["changed"]) == (0, "changed", 1), ran.stderr
    assert f"[{world.name}] dpkg was interrupted; the first role repairs it" in ran.stderr
    assert world.sh("ls /var/lib/dpkg/updates; dpkg --audit") == ""


def test_an_invalid_daemon_json_fails_with_the_line_and_stays_as_it_is(world: World) -> None:
    look = f"stat -c '%y %i %a %u' {DAEMON_JSON}; sha256sum /etc/docker/*; systemctl show docker --property=MainPID"
    world.sh(f"cp -p {DAEMON_JSON} /root/saved.json; echo '}}' >>{DAEMON_JSON}")
    try:
        before = world.sh(look)
        ran = world.call("apply", "--no-verify", world.name)
        after = world.sh(look)
    finally:
        world.sh(f"mv /root/saved.json {DAEMON_JSON}")
    node = ran.node(world.name)
    assert (ran.rc, node["outcome"], node["failure"]["role"]) == (5, "failed", "docker"), ran.stderr
    assert f"{DAEMON_JSON} is not valid JSON: line " in node["failure"]["message"]
    assert "Correct it there" in node["failure"]["hint"]
    assert after == before
