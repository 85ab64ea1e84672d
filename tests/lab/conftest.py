"""Lab nodes for tests. Where containers cannot run, these tests fail and say what is missing."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.commands.enroll import Terms, enroll_nodes
from gpustrap.content import ansible_config, content_root
from gpustrap.lab import inventory
from gpustrap.lab.manager import Lab, LabNode, NodeSpec, all_statuses
from gpustrap.lab.preflight import missing
from gpustrap.model.node import Secrets
from gpustrap.model.site import Site
from gpustrap.site.inventory import load_nodes

PREFIX = "test-"
HERE = Path(__file__).parent
# What the kernel, the engine's NAT and bridges, or time itself move.
VOLATILE = ("net.", "fs.dentry-", "fs.inode-", "fs.file-nr", "fs.quota", "kernel.random.", "kernel.ns_last_pid")
VOLATILE += ("kernel.pty.nr", "fs.aio-nr", "kernel.sched_domain", "vm.stat_refresh", "fs.mqueue")
SETTINGS = "uuid,persistence_mode,power.limit,mig.mode.current,ecc.mode.pending"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything beside this file needs lab nodes; ``-m 'not lab'`` leaves it out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("lab")


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """This test run's own lab; it goes at the end, and what a crashed run left goes now."""
    problems = missing()
    if problems:
        pytest.fail("\n".join(f"{p.message}\n{p.evidence}\nNext: {p.remedy}" for p in problems), pytrace=False)
    for name in {status.lab for status in all_statuses()}:
        if name.startswith(PREFIX) and not Path("/proc", name.removeprefix(PREFIX)).exists():
            Lab(name).down()
    own = Lab(f"{PREFIX}{os.getpid()}")
    try:
        yield own
    finally:
        own.down()


@dataclass(frozen=True, slots=True)
class Played:
    """How ``ansible-playbook`` ended: exit code, counts of the recap, its output; last, once more, what failed."""

    rc: int
    counts: dict[str, int]
    text: str


@pytest.fixture(scope="session")
def play_site() -> Iterator[Callable[..., Played]]:
    """Run site.yml by plain Ansible: ``play_site(inventory, *options)``.

    Its kept-alive connections lie in a directory of this run: an earlier run's may still hold an address that a new
    node has now, and a long home directory makes a path that is too long for a socket.
    """
    with tempfile.TemporaryDirectory(prefix="gst-", dir="/tmp") as control:
        environment = os.environ | {
            "ANSIBLE_CONFIG": str(ansible_config()),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": control,
        }

        def play(inventory: Path, *options: str) -> Played:
            program = str(Path(sys.executable).with_name("ansible-playbook"))
            argv = [program, f"--inventory={inventory}", str(content_root() / "playbooks/site.yml"), *options]
            done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=600)
            recap = done.stdout.rpartition("PLAY RECAP")[2]
            failed = re.findall(r"^.*(?:UNREACHABLE!|FAILED!|\[ERROR\]).*$", done.stdout + done.stderr, re.MULTILINE)
            counts = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", recap)}
            return Played(done.returncode, counts, "\n".join((done.stdout, done.stderr, *failed)))

        yield play


@dataclass
class Target:
    """A node that site.yml is run on by plain Ansible, as root by way of the node's sudo, with a key of its own.

    Attributes:
        variables: Of the node's roles.
        seen: What a fixture did and saw on it, by name, for the tests that follow.
    """

    node: LabNode
    directory: Path
    variables: dict[str, Any]
    ansible: Callable[..., Played]
    seen: dict[str, Any] = field(default_factory=dict)

    def play(self, *options: str, **changed: Any) -> Played:
        """Run site.yml, with some variables changed."""
        known = self.directory / "known"
        host = {
            "ansible_host": self.node.address,
            "ansible_user": self.node.user,
            "ansible_become_password": self.node.password,
            "ansible_ssh_private_key_file": str(self.directory / "key"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={known} -o StrictHostKeyChecking=accept-new",
            **self.variables,
            **changed,
        }
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {self.node.name: host}}}))
        return self.ansible(inventory, *options)

    def sh(self, command: str, *, stdin: bytes | None = None, rc: int = 0, user: str = "root") -> str:
        """What a command prints; another exit status than ``rc`` fails the test."""
        done = self.node.exec(command, stdin=stdin, user=user)
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="session")
def make_target(
    lab: Lab, play_site: Callable[..., Played], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Target]:
    """Start a node that site.yml can be run on: ``make_target("roles-cuda", "debian13", gpus="")``."""

    def make(name: str, os: str, *, gpus: str = "") -> Target:
        [node] = lab.up([NodeSpec(name, os, gpus=gpus)])
        made = Target(node, tmp_path_factory.mktemp(name), {}, play_site)
        key = made.directory / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        home = f"/home/{node.user}/.ssh"
        made.sh(
            f"install -d -o {node.user} -m 700 {home} && cat >{home}/authorized_keys && chown {node.user} {home}/*",
            stdin=key.with_suffix(".pub").read_bytes(),
        )
        return made

    return make


@pytest.fixture(scope="session")
def node_names() -> Iterator[str]:
    """Names no node of this run has had."""
    return (f"n{number}" for number in itertools.count(1))


@pytest.fixture
def make_node(lab: Lab, node_names: Iterator[str]) -> Iterator[Callable[..., LabNode]]:
    """Start a fresh node for this test: ``make_node(os="debian13", bare=False, snapshot=None)``."""
    started: list[str] = []

    def make(os: str = "debian13", *, bare: bool = False, snapshot: str | None = None) -> LabNode:
        name = next(node_names)
        started.append(name)
        return lab.up([NodeSpec(name, os, bare=bare, snapshot=snapshot)])[0]

    yield make
    for name in started:
        lab.remove(name)


@pytest.fixture
def make_site() -> Callable[..., Site]:
    """Make a site with an inventory of nodes: ``make_site(tmp_path, *nodes)``."""

    def make(root: Path, *nodes: LabNode) -> Site:
        site = Site(root / "site")
        inventory.write(site, nodes)
        return site

    return make


@dataclass(frozen=True, slots=True)
class Called:
    """How one call of the program ended, about a site of one node."""

    rc: int
    stdout: str
    stderr: str

    @property
    def data(self) -> dict[str, Any]:
        """What it printed."""
        assert self.stdout, self.stderr
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def node(self) -> dict[str, Any]:
        """What it printed of its node."""
        (found,) = self.data["nodes"]
        return dict(found)


@dataclass(frozen=True, slots=True)
class Operator:
    """Somebody who has a site with one enrolled node, writes requests and calls gpustrap."""

    site: Site
    node: LabNode

    def wish(self, **variables: Any) -> Called:
        """Write the node's request, and plan."""
        path = self.site.inventory / "host_vars" / f"{self.node.name}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(variables))
        planned = self.call("plan")
        assert planned.rc == 0, planned.stderr
        return planned

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a call, in a session of its own."""
        argv = [sys.executable, "-m", "gpustrap", *words, "--site", str(self.site.root), "--format", "json"]
        out = subprocess.PIPE
        return subprocess.Popen(
            argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, text=True, start_new_session=True
        )

    def call(self, *words: str, limit: float = 1200) -> Called:
        """Make a call."""
        return self.end(self.start(*words), limit)

    def end(self, process: subprocess.Popen[str], limit: float = 1200) -> Called:
        """Wait for a call to end."""
        stdout, stderr = process.communicate(timeout=limit)
        assert "Traceback" not in stderr, stderr
        return Called(process.returncode, stdout, stderr)

    def on_node(self, command: str) -> str:
        """Run a command on the node behind SSH's back, as root."""
        done = self.node.exec(command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="session")
def operate(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Operator]:
    """Make a site with a node and enrol it: ``operate(node, standins)``."""

    def make(node: LabNode, standins: dict[str, object] | None = None) -> Operator:
        site = Site(tmp_path_factory.mktemp("operator") / "site")
        inventory.write(site, [node], standins)
        secrets = Secrets(ssh_password=node.password, become_password=node.password)
        enroll_nodes(site, load_nodes(site), secrets=secrets, terms=Terms(accept_new=True, passwordless_sudo=True))
        return Operator(site, node)

    return make


@pytest.fixture(scope="session")
def this_machine() -> Callable[[], dict[str, Any]]:
    """What a lab must leave as it is: kernel settings, modules, the engine's configuration, GPUs and their driver."""

    def look() -> dict[str, Any]:
        files = (Path("/etc/containers/containers.conf"), *Path("/proc/driver").glob("nvidia/*"))
        return {
            "sysctls": _sysctls(),
            "modules": sorted(path.name for path in Path("/sys/module").iterdir()),
            "files": {str(path): path.read_bytes() for path in files if path.is_file()},
            "drivers": {str(path): path.resolve().name for path in Path("/sys/bus/pci/devices").glob("*/driver")},
            "devices": {
                str(path): (path.stat().st_mode, path.stat().st_rdev)
                for path in (*Path("/dev").glob("nvidia*"), Path("/dev/kmsg"))
                if path.exists()
            },
            "gpu settings": _settings(),
        }

    return look


def _sysctls() -> dict[str, str]:
    found = {}
    for path in sorted(Path("/proc/sys").rglob("*")):
        name = str(path.relative_to("/proc/sys")).replace("/", ".")
        if path.is_file() and not name.startswith(VOLATILE):
            try:
                found[name] = path.read_text()
            except (OSError, UnicodeDecodeError):
                continue
    return found


def _settings() -> str:
    """Of this machine's own GPUs, where it has any."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", f"--query-gpu={SETTINGS}", "--format=csv"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
