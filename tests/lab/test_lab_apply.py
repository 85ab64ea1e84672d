"""apply and drift on one real node, as a user runs them: one story, told once, and what must be true of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpustrap.commands.enroll import Terms, enroll_nodes
from gpustrap.lab import inventory
from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.model.node import Secrets
from gpustrap.model.site import Site
from gpustrap.site.inventory import load_nodes

LIMIT = 1200  # seconds; a small machine with other work takes minutes to install docker
MIDDLE = "Ensure base packages"  # Ctrl-C comes when this task is under way


@dataclass
class Ran:
    """One call of the program."""

    rc: int
    stdout: str
    stderr: str

    @property
    def data(self) -> dict[str, Any]:
        assert self.stdout, self.stderr
        return json.loads(self.stdout)

    @property
    def node(self) -> dict[str, Any]:
        (node,) = self.data["nodes"]
        return node


@dataclass
class Story:
    """What happened, step by step."""

    site: Site
    node: LabNode
    scratch: Path
    steps: dict[str, Ran] = field(default_factory=dict)

    def call(self, step: str, verb: str, *words: str, interrupt_at: str = "") -> Ran:
        """Run a verb with the sudo password in a pipe; with `interrupt_at`, press Ctrl-C when progress says so."""
        reader, writer = os.pipe()
        os.write(writer, self.node.password.encode() + b"\n")
        os.close(writer)
        command = [sys.executable, "-m", "gpustrap", verb, "--site", str(self.site.root), "--format", "json"]
        command += ["--become-password-fd", str(reader), *words]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(self.scratch)},
            pass_fds=[reader],
            start_new_session=True,
        )
        os.close(reader)
        said = ""
        assert process.stderr is not None
        if interrupt_at:
            for line in process.stderr:
                said += line
                if interrupt_at in line:
                    time.sleep(1)
                    process.send_signal(signal.SIGINT)
                    break
        stdout, rest = process.communicate(timeout=LIMIT)
        self.steps[step] = ran = Ran(process.returncode, stdout, said + rest)
        assert "Traceback" not in ran.stderr
        return ran

    def on_node(self, command: str) -> str:
        done = self.node.exec(command)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


@pytest.fixture(scope="module")
def short_directory() -> Iterator[Path]:
    """For the temporary files of all runs: of our own, and near enough to the root for sockets; pytest's is not."""
    with tempfile.TemporaryDirectory(prefix="gst-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def story(
    lab: Lab, node_names: Iterator[str], tmp_path_factory: pytest.TempPathFactory, short_directory: Path
) -> Iterator[Story]:
    """Enrol, plan, check, interrupt, apply twice, break, repair; each step once, for all tests here."""
    name = next(node_names)
    node = lab.up([NodeSpec(name, "debian13")])[0]
    site = Site(tmp_path_factory.mktemp("apply") / "my site")  # with a space, as users have them
    inventory.write(site, [node])
    variables = site.inventory / "host_vars" / f"{name}.yml"
    variables.parent.mkdir(parents=True)
    variables.write_text("gpustrap_conda: false\ngpustrap_packages: [jq]\n")
    secrets = Secrets(ssh_password=node.password, become_password=node.password)
    enroll_nodes(site, load_nodes(site), secrets=secrets, terms=Terms(accept_new=True))
    told = Story(site, node, short_directory)
    assert told.call("plan", "plan").rc == 0, told.steps["plan"].stderr
    told.call("never applied", "drift")
    told.call("check", "apply", "--check")
    told.call("interrupted", "apply", "--no-verify", interrupt_at=MIDDLE)
    told.call("after ctrl-c", "drift")
    told.call("first", "apply", "--no-verify")
    told.call("second", "apply", "--no-verify")
    told.call("in sync", "drift")
    told.on_node("apt-get purge -y -qq jq && systemctl stop docker.service docker.socket")
    told.on_node("sed -i 's/50m/1m/' /etc/docker/daemon.json")
    told.call("broken", "drift")
    told.call("repair", "apply", "--no-verify")
    told.call("repaired", "drift")
    told.call("only docker", "apply", "--no-verify", "--tags", "docker")
    told.call("after tags", "drift")
    variables.write_text("gpustrap_conda: false\ngpustrap_packages: [jq, tree]\n")
    told.call("stale", "apply", "--no-verify")
    yield told
    lab.remove(name)


def test_a_node_that_was_never_applied_is_not_in_sync(story: Story) -> None:
    ran = story.steps["never applied"]
    assert ran.rc == 13
    assert [p["code"] for p in ran.node["problems"]] == ["no-ledger"]


def test_check_mode_passes_on_a_fresh_node_and_says_what_would_change(story: Story) -> None:
    ran = story.steps["check"]
    assert ran.rc == 0, ran.stderr
    assert ran.node["outcome"] == "would-change"
    assert any("ubuntu_server" in task for task in ran.node["changed_tasks"])


def test_ctrl_c_says_that_the_state_is_unknown_and_leaves_the_run_open(story: Story) -> None:
    ran = story.steps["interrupted"]
    assert ran.rc == 130, ran.stderr
    assert ran.node["outcome"] == "unknown"
    assert ran.node["failure"]["hint"].startswith("gpustrap apply")
    drift = story.steps["after ctrl-c"]
    assert drift.rc == 13
    assert [p["code"] for p in drift.node["problems"]] == ["run-incomplete"]
    assert ran.data["id"] in drift.node["problems"][0]["message"]


def test_the_next_apply_finishes_and_a_second_changes_nothing(story: Story) -> None:
    first, second = story.steps["first"], story.steps["second"]
    assert (first.rc, first.node["outcome"]) == (0, "changed"), first.stderr
    assert (second.rc, second.node["outcome"], second.node["changed"]) == (0, "unchanged", 0), second.stdout
    drift = story.steps["in sync"]
    assert drift.rc == 0, drift.stdout
    assert drift.node["in_sync"]
    assert drift.node["checked"] > 10


def test_drift_names_the_three_broken_things_and_who_repairs_them(story: Story) -> None:
    ran = story.steps["broken"]
    assert ran.rc == 10, ran.stdout
    assert {(i["kind"], i["name"], i["role"]) for i in ran.node["items"]} == {
        ("package", "jq", "ubuntu_server"),
        ("key", "/etc/docker/daemon.json#/log-opts/max-size", "docker"),
        ("unit", "docker.service", "docker"),
    }


def test_apply_repairs_them(story: Story) -> None:
    repair, after = story.steps["repair"], story.steps["repaired"]
    assert (repair.rc, repair.node["outcome"]) == (0, "changed"), repair.stderr
    assert after.rc == 0, after.stdout
    assert story.on_node("jq --version && systemctl is-active docker").split()[-1] == "active"


def test_a_run_of_some_roles_is_incomplete_but_forgets_nothing(story: Story) -> None:
    assert story.steps["only docker"].rc == 0
    ran = story.steps["after tags"]
    assert ran.rc == 13
    assert [p["code"] for p in ran.node["problems"]] == ["run-incomplete"]
    assert ran.node["items"] == []
    assert ran.node["checked"] == story.steps["repaired"].node["checked"]


def test_a_stale_lock_is_refused_before_anything_is_changed(story: Story) -> None:
    ran = story.steps["stale"]
    assert ran.rc == 3, ran.stderr
    assert ran.node["outcome"] == "not-run"
    assert ran.node["failure"]["task"] == "lock-stale"
    assert ran.node["failure"]["hint"].startswith("gpustrap plan")
    story.on_node("! command -v tree && test ! -e /var/lib/gpustrap/open-run")


def test_the_password_is_nowhere_in_the_site_or_in_what_was_said(story: Story) -> None:
    secret = story.node.password
    files = [p for p in story.site.root.rglob("*") if p.is_file()]
    assert len(files) > 20
    assert [p for p in files if secret.encode() in p.read_bytes()] == []
    assert [step for step, ran in story.steps.items() if secret in ran.stdout + ran.stderr] == []


def test_every_run_is_written_down_for_its_user_alone(story: Story) -> None:
    runs = sorted(story.site.runs.iterdir())
    assert len(runs) == 7
    for run in runs[:-1]:
        assert {p.name for p in run.iterdir()} >= {"events.jsonl", "summary.json", "ansible.log", "report.html"}
    assert all(p.stat().st_mode & 0o077 == 0 for run in runs for p in (run, *run.iterdir()))


def test_nothing_of_a_run_is_left_on_this_machine(story: Story) -> None:
    """No file, and no process: what a run starts has its directory in the environment or, as ssh, in its title."""
    assert list(story.scratch.iterdir()) == []
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile
            title = (process / "cmdline").read_bytes()
            if os.fsencode(story.scratch) in title + (process / "environ").read_bytes():
                left.append(title.replace(b"\0", b" "))
    assert left == []
