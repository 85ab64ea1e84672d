"""Lab nodes look like fresh machines, behave like machines, and leave this machine alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
import pytest

from gpustrap.commands import lab as commands
from gpustrap.errors import GpustrapError
from gpustrap.exitcodes import ExitCode
from gpustrap.lab import container, images, state
from gpustrap.lab.manager import Lab, LabNode, NodeSpec, all_statuses
from gpustrap.model.site import Site

MakeNode = Callable[..., LabNode]


def login(node: LabNode, user: str, password: str) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(node.address, username=user, password=password, allow_agent=False, look_for_keys=False, timeout=30)
    return client


def test_a_fresh_machine(make_node: MakeNode) -> None:
    node = make_node("debian13")
    with login(node, "ubuntu", node.password) as client:
        key = client.get_transport().get_remote_server_key()
        assert key.fingerprint == node.host_key_fingerprint or key.get_name() != "ssh-ed25519"
        _, out, _ = client.exec_command("id -un; hostname; sudo -n true 2>&1")
        assert out.read().decode().split("\n")[:3] == ["ubuntu", node.name, "sudo: a password is required"]
        stdin, out, _ = client.exec_command("sudo -S -p '' id -un")
        stdin.write(f"{node.password}\n")
        stdin.flush()
        assert out.read() == b"root\n"
    with pytest.raises(paramiko.AuthenticationException):
        login(node, "root", node.password)
    assert node.exec("systemctl is-system-running").stdout == "running\n"
    assert node.exec("awk -F: '$3 >= 1000 && $3 < 60000 {print $1}' /etc/passwd").stdout == "ubuntu\n"
    assert node.exec("command -v python3").returncode == 0
    assert node.exec("ls /sys/bus/pci/devices").stdout == ""
    assert node.exec("grep -c ' /etc/' /proc/mounts").stdout == "0\n"


@pytest.mark.slow
def test_a_bare_machine_has_no_python(make_node: MakeNode) -> None:
    node = make_node("debian13", bare=True)
    assert node.exec("command -v python3").returncode != 0
    assert node.exec("systemctl is-system-running").stdout == "running\n"
    login(node, "ubuntu", node.password).close()


@pytest.mark.slow
def test_nodes_find_each_other_and_their_packages(lab: Lab, make_node: MakeNode) -> None:
    one, two = make_node("debian13"), make_node("debian12")
    assert one.address in two.exec(["getent", "hosts", one.name]).stdout
    assert two.exec("apt-get -q update && apt-get -q install -y --no-install-recommends hello").returncode == 0
    release = {node.name: node.exec(". /etc/os-release; echo $VERSION_ID").stdout.strip() for node in (one, two)}
    assert release == {one.name: "13", two.name: "12"}


@pytest.mark.slow
def test_a_reboot_keeps_what_a_machine_keeps(lab: Lab, make_node: MakeNode) -> None:
    node = make_node("debian12")
    node.exec("hostnamectl set-hostname renamed; echo '192.0.2.7 mine' >>/etc/hosts; touch /run/gone /var/lib/stays")
    identity = "cat /etc/machine-id /etc/hostname; tail -n1 /etc/hosts; hostname; ls /var/lib/stays"
    before = node.exec(identity).stdout
    again = lab.reboot(node.name)
    assert (again.host_key_fingerprint, again.address) == (node.host_key_fingerprint, node.address)
    assert again.exec(identity).stdout == before
    assert again.exec("ls /run/gone").returncode != 0
    login(again, "ubuntu", node.password).close()


@pytest.mark.slow
def test_a_snapshot_is_a_new_machine_with_the_same_files(lab: Lab, make_node: MakeNode) -> None:
    node = make_node("debian13")
    node.exec("touch /etc/kept; touch /var/lib/docker/not-kept")
    lab.snapshot(node.name, "kept")
    copy = make_node("debian13", snapshot="kept")
    assert copy.exec("ls /etc/kept").returncode == 0
    assert copy.exec("ls /var/lib/docker").stdout == ""
    assert copy.exec("hostname").stdout == f"{copy.name}\n"
    assert copy.host_key_fingerprint != node.host_key_fingerprint
    assert copy.exec("cat /etc/machine-id").stdout != node.exec("cat /etc/machine-id").stdout


def test_this_machine_stays_as_it_is(make_node: MakeNode, this_machine: Callable[[], dict[str, Any]]) -> None:
    before, clock = this_machine(), time.time() - time.monotonic()
    node = make_node("debian13")
    attempts = {
        "a kernel setting": "sysctl -w kernel.panic=77",
        "a memory setting": "sysctl -w vm.swappiness=1",
        "a write past sysctl": "echo 77 >/proc/sys/kernel/panic",
        "the clock": "date -s 2001-01-01",
        "a kernel module": "modprobe dummy",
        "a disk": "read dev </sys/block/$(ls /sys/block | tail -n1)/dev; mknod /root/disk b ${dev%:*} ${dev#*:}; "
        "head -c1 /root/disk",
        "memory": "mknod /root/mem c 1 1; head -c1 /root/mem",
    }
    done = {what: node.exec(command).returncode for what, command in attempts.items()}
    assert all(done.values()), f"succeeded: {[what for what, code in done.items() if code == 0]}"
    assert node.exec("sysctl -w net.ipv4.conf.all.forwarding=1").returncode == 0, "its own network is its own"
    assert this_machine() == before
    assert abs(time.time() - time.monotonic() - clock) < 2


@pytest.mark.slow
def test_up_again_changes_nothing_and_starts_what_stopped(lab: Lab, make_node: MakeNode) -> None:
    node = make_node("debian13")
    started = lab.engine.run("inspect", "--format={{.State.StartedAt}}", node.container)
    assert lab.up([NodeSpec(node.name, "debian13")]) == (node,)
    assert lab.engine.run("inspect", "--format={{.State.StartedAt}}", node.container) == started
    lab.engine.run("kill", node.container)
    lab.engine.run("stop", "--time=0", node.container)
    assert {s.name: s.state for s in all_statuses() if s.lab == lab.name}[node.name] != "running"
    assert lab.up([NodeSpec(node.name, "debian13")]) == (node,)
    with pytest.raises(GpustrapError) as caught:
        lab.up([NodeSpec(node.name, "debian12")])
    assert [problem.code for problem in caught.value.problems] == ["lab-node-differs"]


def test_leftovers_of_a_crash_are_shown_and_removed(lab: Lab) -> None:
    name = f"{lab.name}-crash"
    crashed = Lab(name)
    (node,) = crashed.up([NodeSpec("n1", "debian13")])
    crashed.snapshot("n1", "any")
    volume, snapshot = container.volume(name, "n1"), f"localhost/gpustrap-lab/snapshot-{name}:any"
    lab.engine.run("kill", "--signal=KILL", node.container)
    state.remove(name)  # nothing but the labels tells that there was a lab
    assert name in {status.lab for status in commands.status()}
    assert commands.down(name) == ("n1",)
    assert name not in {status.lab for status in commands.status()}
    for what, thing in (("container", node.container), ("volume", volume), ("image", snapshot)):
        assert not lab.engine.exists(what, thing), thing
    assert commands.down(name) == ()


def test_a_site_gets_the_nodes_and_loses_them_again(lab: Lab, tmp_path: Path) -> None:
    name = f"{lab.name}-site"
    site = Site(tmp_path / "my site")
    try:
        commands.up(["n1:debian13"], lab=name, site=site)
        listed = subprocess.run(
            (Path(sys.executable).with_name("ansible-inventory"), "-i", site.inventory, "--host", "n1"),
            capture_output=True,
            text=True,
            check=True,
        )
        assert '"ansible_user": "ubuntu"' in listed.stdout
        assert commands.password_file(name).read_text().strip() == Lab(name).node("n1").password
    finally:
        commands.down(name)
    assert not list(site.inventory.iterdir())
    with pytest.raises(GpustrapError, match="has no nodes"):
        commands.password_file(name)


@pytest.mark.slow
def test_the_mirror_shows_a_directory_read_only(lab: Lab, make_node: MakeNode, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("served")
    (tmp_path / "file").chmod(0o600)
    url = lab.serve(tmp_path)
    node = make_node("debian13")
    fetch = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
    for base in (url, "http://mirror"):
        assert node.exec(["python3", "-c", fetch, f"{base}/file"]).stdout == "served\n"
    assert node in lab.nodes()
    assert "mirror" not in {one.name for one in lab.nodes()}
    mirror = container.name(lab.name, "mirror")
    assert lab.engine.call("exec", mirror, "touch", "/srv/other").returncode != 0


@pytest.mark.slow
def test_an_image_that_cannot_be_pulled_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(images.REGISTRY_VARIABLE, "127.0.0.1:9/none")
    with pytest.raises(GpustrapError) as caught:
        lab.up([NodeSpec("u1", "ubuntu2404"), NodeSpec("u2", "no-such")])
    codes = {problem.code: problem for problem in caught.value.problems}
    assert set(codes) == {"image-not-reachable", "image-unknown"}
    assert caught.value.exit_code is ExitCode.REFUSED
    assert "debian13" in codes["image-not-reachable"].remedy


@pytest.mark.slow
def test_docker_runs_bridged_containers_in_a_node_also_after_a_reboot(lab: Lab, make_node: MakeNode) -> None:
    node = make_node("debian13")
    install = "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends"
    assert node.exec(f"{install} docker.io docker-cli", timeout=600).returncode == 0
    image = """
        set -e; mkdir /tmp/tree
        for file in /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*'); do
            mkdir -p /tmp/tree${file%/*}; cp -L $file /tmp/tree$file
        done
        tar -C /tmp/tree -c . | docker import - own
    """
    assert node.exec(image).returncode == 0
    run = "docker run --rm own /bin/sh -c 'echo in a container'"
    assert node.exec(run).stdout == "in a container\n"
    assert node.exec("docker info --format '{{.Driver}}'").stdout == "overlay2\n"
    assert lab.reboot(node.name).exec(run).stdout == "in a container\n"
