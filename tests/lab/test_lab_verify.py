"""verify and report on a real node, really applied: it passes, is left as found, and what is broken is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpustrap.lab import inventory
from gpustrap.lab.manager import Lab, LabNode, NodeSpec
from gpustrap.model.site import Site

pytestmark = pytest.mark.slow

# Everything a verification could leave: files with their sizes and times (of directories no times: ours came and went),
# containers, images, failed units, processes of ours.
PICTURE = r"""
find /root /home /etc /opt/conda /tmp /var/tmp /run/gpustrap* /var/lib/gpustrap -xdev \
  \( -type d -printf '%p %m %u\n' -o -printf '%p %s %m %u %T@\n' \) 2>/dev/null | grep -v systemd-private | sort
docker ps --all --no-trunc; docker images --all --no-trunc; docker volume ls; docker network ls --no-trunc
systemctl list-units --failed --plain --no-legend
pgrep -af [g]pustrap_verify
true
"""


@dataclass
class World:
    """A site with one converged node."""

    site: Site
    node: LabNode

    def gpustrap(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GPUSTRAP_SSH_PASSWORD": self.node.password, "NO_COLOR": "1"}
        command = [sys.executable, "-m", "gpustrap", words[0], "--site", str(self.site.root), *words[1:]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1500)
        assert "Traceback" not in done.stderr
        assert self.node.password not in done.stdout + done.stderr
        return done

    def verify(self) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
        done = self.gpustrap("verify", "--format", "json")
        data = json.loads(done.stdout)
        checks = {c["id"]: c for node in data["nodes"] for c in node["checks"]}
        return done.returncode, checks, data

    def sh(self, script: str) -> str:
        done = self.node.exec(script)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


@pytest.fixture(scope="module")
def world(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    node = lab.up([NodeSpec("verify")])[0]
    site = Site(tmp_path_factory.mktemp("verify") / "site")
    inventory.write(site, [node], lab.standins(lambda _step: None))
    world = World(site, node)
    for words in (["enroll", "--accept-new"], ["plan"], ["apply", "--no-verify"]):
        done = world.gpustrap(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    yield world
    lab.remove("verify")


def test_a_converged_node_passes_and_is_left_as_found(world: World) -> None:
    world.verify()  # the first login of a day may make a directory of its own
    before = world.sh(PICTURE)
    code, checks, data = world.verify()
    assert code == 0, json.dumps(data, indent=1)
    assert {c["verdict"] for c in checks.values()} == {"pass"}
    assert {"ssh-login", "docker-runs-a-container", "conda-creates-an-environment"} <= checks.keys()
    assert checks["conda-creates-an-environment"]["simulated"]
    assert not checks["docker-runs-a-container"]["simulated"]
    assert world.sh(PICTURE) == before


def test_what_an_earlier_run_left_is_removed(world: World) -> None:
    world.sh(
        "tar -C / -c bin/true 2>/dev/null | docker import --change 'LABEL gpustrap.run=dead' - >/dev/null;"
        "docker create --label gpustrap.run=dead $(docker images -q | head -1) /bin/true >/dev/null;"
        "mkdir -m 700 /var/tmp/gpustrap-verify-dead"
    )
    assert world.verify()[0] == 0
    assert world.sh("docker ps -aq; docker images -q; ls -d /var/tmp/gpustrap-verify-* 2>/dev/null; true") == ""


def test_a_masked_dockerd_fails_with_evidence_and_the_way_out(world: World) -> None:
    world.sh("systemctl mask --now docker.service docker.socket 2>&1")
    try:
        code, checks, _ = world.verify()
        shown = world.gpustrap("verify")
    finally:
        world.sh("systemctl unmask docker.service docker.socket 2>&1; systemctl start docker.service")
    assert code == shown.returncode == 12
    assert "masked" in checks["docker-daemon"]["reason"]
    assert "systemctl unmask" in checks["docker-daemon"]["remedy"]
    assert "docker daemon" in checks["docker-runs-a-container"]["evidence"].lower()
    assert checks["conda-creates-an-environment"]["verdict"] == "pass"
    assert "systemctl unmask" in shown.stdout


def test_an_invalid_daemon_json_is_found_before_the_restart(world: World) -> None:
    world.sh("cp -p /etc/docker/daemon.json /root/saved.json; echo '}' >> /etc/docker/daemon.json")
    try:
        code, checks, _ = world.verify()
    finally:
        world.sh("mv /root/saved.json /etc/docker/daemon.json")
    assert code == 12
    assert "not valid" in checks["docker-config"]["reason"]
    assert "line" in checks["docker-config"]["evidence"]
    assert checks["docker-runs-a-container"]["verdict"] == "pass"


def test_a_broken_conda_fails(world: World) -> None:
    world.sh("mv /opt/conda/bin/conda /opt/conda/bin/conda.away")
    try:
        code, checks, _ = world.verify()
    finally:
        world.sh("mv /opt/conda/bin/conda.away /opt/conda/bin/conda")
    assert code == 12
    assert checks["conda-version"]["verdict"] == checks["conda-creates-an-environment"]["verdict"] == "fail"
    assert "No such file" in checks["conda-version"]["evidence"]
    assert checks["docker-runs-a-container"]["verdict"] == "pass"


def test_a_full_disk_fails_and_nothing_hangs(world: World) -> None:
    world.sh("mount -t tmpfs -o size=64k,mode=1777 tmpfs /var/tmp; dd if=/dev/zero of=/var/tmp/full 2>/dev/null; true")
    try:
        code, checks, _ = world.verify()
    finally:
        world.sh("umount /var/tmp")
    assert code == 12
    assert "/var/tmp has 0 MiB left" in checks["disk-has-room"]["reason"]
    assert checks["conda-creates-an-environment"]["verdict"] == "fail"


def test_a_failed_unit_of_anothers_is_a_warning(world: World) -> None:
    world.sh("systemd-run --unit=elses-thing --quiet false; sleep 1")
    try:
        code, checks, _ = world.verify()
    finally:
        world.sh("systemctl reset-failed elses-thing.service")
    assert code == 11
    assert "elses-thing.service" in checks["systemd-healthy"]["reason"]


def test_a_node_without_the_key_no_longer_lets_us_in(world: World) -> None:
    keys = f"/home/{world.node.user}/.ssh/authorized_keys"
    world.sh(f"mv {keys} {keys}.away")
    try:
        code, checks, _ = world.verify()  # the password still opens the door to the checks
    finally:
        world.sh(f"mv {keys}.away {keys}")
    assert code == 12
    assert checks["ssh-login"]["verdict"] == "fail"
    assert checks["sudo-works"]["verdict"] == "pass"


def test_report_and_archive_of_the_run(world: World, tmp_path: Path) -> None:
    shown = world.gpustrap("report")
    assert shown.returncode == 0
    assert f"{world.node.name} " in shown.stdout
    page = Path(world.gpustrap("report", "--html").stdout.strip())
    assert "simulated" in page.read_text(encoding="utf-8")
    target = tmp_path / "support.tar.gz"
    done = world.gpustrap("report", "--bundle", world.node.name, "-o", str(target))
    assert done.returncode == 0, done.stderr
    assert "ledger.json" in done.stderr
    with tarfile.open(target) as tar:
        files = {m.name: tar.extractfile(m).read().decode() for m in tar.getmembers()}  # type: ignore[union-attr]
    assert '"resources"' in files[f"gpustrap-{world.node.name}/ledger.json"]
    assert any(name.endswith("/events.jsonl") for name in files)
    everything = "".join(files.values())
    assert world.node.password not in everything
    assert world.sh("cat /etc/machine-id").strip() not in everything
