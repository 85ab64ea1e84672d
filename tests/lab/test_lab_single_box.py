"""gpustrap installed on a node, as a home user does: from init to a driver that runs after the reboot it asked for."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.ansible_plugins.module_utils.gpustrap_node import resume
from gpustrap.lab.manager import Lab, LabNode, NodeSpec

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
LIMIT = 3000  # seconds for an apply; a small machine with other work takes long
WISHES: dict[str, Any] = {
    "gpustrap_conda": False,
    "gpustrap_docker": False,
    "gpustrap_cuda_version": "none",
    "gpustrap_environments": [],
}
INSTALL = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -qy install --no-install-recommends python3-venv
mkdir -p /opt/wheel && cat > /opt/wheel/{wheel}
"""
VENV = "python3 -m venv ~/venv && ~/venv/bin/pip install -q /opt/wheel/*.whl && mkdir ~/site"
SITE = "cd ~/site && ~/venv/bin/gpustrap init && cat >> inventory/group_vars/all.yml"
BOOT = "cat /proc/sys/kernel/random/boot_id"


@dataclass
class Box:
    """A node on which user ubuntu has gpustrap in a virtual environment and a site; sudo asks for the password."""

    node: LabNode
    steps: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)

    def user(self, command: str, stdin: str = "", timeout: float = 900) -> subprocess.CompletedProcess[str]:
        return self.node.exec(("su", "-", "ubuntu", "-c", command), stdin=stdin.encode(), timeout=timeout)

    def call(self, step: str, words: str) -> subprocess.CompletedProcess[str]:
        """Run gpustrap with the sudo password on its stdin."""
        command = f"cd ~/site && ~/venv/bin/gpustrap {words} --become-password-fd 0"
        self.steps[step] = done = self.user(command, f"{self.node.password}\n", timeout=LIMIT)
        assert "Traceback" not in done.stderr
        return done

    def root(self, command: str) -> str:
        done = self.node.exec(command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def wait_for_the_end(self) -> str:
        """The note at the logins, as soon as what went on after the reboot has written it."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            done = self.node.exec(f"grep -l 'and ended' {resume.NOTE} && cat {resume.NOTE}")
            if done.returncode == 0:
                return done.stdout
            time.sleep(5)
        pytest.fail(self.node.exec(f"cat {resume.NOTE} {resume.LOG}; systemctl status gpustrap-resume").stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scratch = tmp_path_factory.mktemp("wheel")
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(scratch / "clone")], check=True)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(scratch), str(scratch / "clone")]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (built,) = scratch.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def box(lab: Lab, node_names: Iterator[str], wheel: Path) -> Iterator[Box]:
    """Plan, apply without leave to reboot, apply with it, wait, apply again."""
    name = next(node_names)
    node = lab.up([NodeSpec(name, "debian13", gpus="4x-rtx3090")])[0]
    box = Box(node)
    installed = node.exec(INSTALL.format(wheel=wheel.name), stdin=wheel.read_bytes(), timeout=900)
    assert installed.returncode == 0, installed.stderr
    for command, stdin in ((VENV, ""), (SITE, yaml.safe_dump({**lab.standins(), **WISHES}))):
        done = box.user(command, stdin)
        assert done.returncode == 0, done.stderr
    planned = box.call("plan", "plan --local")
    assert planned.returncode == 0, planned.stderr
    boots = [box.root(BOOT)]
    box.call("not allowed", "apply --local")
    boots.append(box.root(BOOT))
    assert boots[0] == boots[1], "rebooted without leave"
    box.call("allowed", "apply --local --reboot")
    box.steps["note"] = subprocess.CompletedProcess((), 0, box.wait_for_the_end(), "")
    assert box.root(BOOT) != boots[0]
    box.call("second", "apply --local --format json")
    yield box
    lab.remove(name)


def test_without_leave_it_says_how_to_go_on(box: Box) -> None:
    done = box.steps["not allowed"]
    assert done.returncode == 21, done.stderr
    assert "gpustrap apply --local --reboot" in done.stdout + done.stderr


def test_with_leave_it_reboots_and_goes_on_by_itself(box: Box) -> None:
    done = box.steps["allowed"]
    assert done.returncode == 21, done.stderr
    assert "Rebooting now" in done.stderr
    note = box.steps["note"].stdout
    assert "(exit code 0)" in note, note + box.root(f"cat {resume.LOG}")
    assert "NVRM version" in box.root("cat /proc/driver/nvidia/version")


def test_the_unit_is_gone_and_its_log_is_roots(box: Box) -> None:
    box.root(f"test ! -e {resume.UNIT} && test ! -L {resume.WANTED} && test ! -e {resume.ENVIRONMENT}")
    assert box.root(f"stat -c '%U %a' {resume.LOG}") == "root 600"
    assert "apply" in box.root(f"cat {resume.LOG}").lower()


def test_the_second_apply_changes_nothing_and_takes_the_note_away(box: Box) -> None:
    done = box.steps["second"]
    assert done.returncode == 0, done.stderr
    (node,) = json.loads(done.stdout)["nodes"]
    assert (node["outcome"], node["changed"], node["boots"]) == ("unchanged", 0, [])
    box.root(f"test ! -e {resume.NOTE}")


def test_the_site_is_still_its_users(box: Box) -> None:
    assert box.root("find /home/ubuntu/site ! -user ubuntu") == ""


def test_the_password_is_nowhere(box: Box) -> None:
    done = box.node.exec(f"grep -rlF {box.node.password} /home/ubuntu/site {resume.LOG} /etc/systemd /etc/motd.d")
    assert done.stdout == ""
