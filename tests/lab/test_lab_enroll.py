"""enroll on real nodes, through the program as a user calls it: what works, and every way in which it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from gpustrap.lab.manager import LabNode, NodeSpec
from gpustrap.model.site import Site


@dataclass
class Answer:
    rc: int
    stderr: str
    data: dict

    @property
    def node(self) -> dict:
        (node,) = self.data["nodes"]
        return node

    @property
    def problem(self) -> dict:
        (problem,) = self.data["problems"]
        return problem


def enroll(site: Site, *arguments: str, password: str | None = None, become: str | None = None) -> Answer:
    """Run ``gpustrap enroll``; passwords come in through pipes, as from a password file."""
    command = [sys.executable, "-m", "gpustrap", "enroll", "--site", str(site.root), "--format", "json", *arguments]
    pipes = []
    for option, value in (("--password-fd", password), ("--become-password-fd", become)):
        if value is not None:
            reader, writer = os.pipe()
            os.write(writer, value.encode() + b"\n")
            os.close(writer)
            pipes.append(reader)
            command += [option, str(reader)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, pass_fds=pipes, check=False, timeout=600)
    finally:
        for reader in pipes:
            os.close(reader)
    assert "Traceback" not in done.stderr
    for secret in (password, become):
        assert not secret or secret not in done.stdout + done.stderr
    return Answer(done.returncode, done.stderr, json.loads(done.stdout) if done.stdout else {})


# A node takes seconds to boot; this takes it back to its first day as far as enroll is concerned.
RESET = """
if mountpoint -q /home/{user}; then umount /home/{user}; fi
rm -rf /home/{user}/.ssh /etc/sudoers.d/tty /etc/sudoers.d/zz-*
if [ -e /usr/bin/not-sudo ]; then mv /usr/bin/not-sudo /usr/bin/sudo; fi
usermod -aG sudo {user}
"""


@pytest.fixture(scope="module")
def shared_node(lab) -> Iterator[LabNode]:
    yield lab.up([NodeSpec("enroll")])[0]
    lab.remove("enroll")


@pytest.fixture
def node(shared_node) -> LabNode:
    assert shared_node.exec(RESET.format(user=shared_node.user)).returncode == 0
    fingerprint = shared_node.exec("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").stdout.split()[1]
    return replace(shared_node, host_key_fingerprint=fingerprint)


@pytest.fixture
def site(make_site, tmp_path, node) -> Site:
    return make_site(tmp_path, node)


def write(node: LabNode, path: str, content: str, mode: str = "0440") -> None:
    node.exec(
        [
            "sh",
            "-c",
            'umask 077; printf "%s\\n" "$1" > "$2.new" && chmod "$3" "$2.new" && mv "$2.new" "$2"',
            "sh",
            content,
            path,
            mode,
        ]
    )


def test_password_login_and_sudo_with_password_then_again_with_the_key(node, site):
    first = enroll(site, "--accept-new", password=node.password)
    assert first.rc == 0, first.stderr
    assert first.node["host_key"] == {"type": "ssh-ed25519", "fingerprint": node.host_key_fingerprint, "was": "new"}
    assert first.node["login"] == "password"
    assert first.node["sudo"]["escalation"] == "password"
    assert first.node["python"]["version"].startswith("3.")
    keys = node.exec(f"stat -c '%a %U' ~{node.user}/.ssh ~{node.user}/.ssh/authorized_keys").stdout
    assert keys.splitlines() == [f"700 {node.user}", f"600 {node.user}"]

    again = enroll(site, become=node.password)
    assert again.rc == 0, again.stderr
    assert (again.node["login"], again.node["host_key"]["was"], again.node["changes"]) == ("site key", "known", [])
    assert node.exec(f"grep -c . ~{node.user}/.ssh/authorized_keys").stdout.strip() == "1"


@pytest.mark.slow
def test_the_expected_fingerprint_and_passwordless_sudo(node, site):
    wrong = enroll(site, "--fingerprint", "SHA256:" + "A" * 43, node.name, password=node.password)
    assert (wrong.rc, wrong.problem["code"]) == (4, "host-key-unexpected")
    assert not site.known_hosts.exists()

    right = enroll(site, "--fingerprint", node.host_key_fingerprint, "--passwordless-sudo", password=node.password)
    assert right.rc == 0, right.stderr
    assert right.node["sudo"]["escalation"] == "nopasswd"
    assert node.exec(f"stat -c '%a %U' /etc/sudoers.d/zz-gpustrap-{node.user}").stdout.split() == ["440", "root"]
    again = enroll(site)
    assert (again.rc, again.node["changes"]) == (0, [])


def test_an_unknown_key_is_refused_and_nothing_is_sent(node, site):
    answer = enroll(site, password=node.password)
    assert (answer.rc, answer.problem["code"]) == (4, "host-key-unknown")
    assert node.host_key_fingerprint in answer.problem["evidence"]
    assert f"node {node.name}" == answer.problem["subject"]
    assert "--fingerprint" in answer.problem["remedy"]
    assert node.exec(f"test -e ~{node.user}/.ssh").returncode != 0


def test_a_changed_key_is_refused_until_the_node_is_named(node, site):
    assert enroll(site, "--accept-new", password=node.password).rc == 0
    old = node.host_key_fingerprint
    node.exec("rm /etc/ssh/ssh_host_*; ssh-keygen -q -A; systemctl restart ssh")
    new = node.exec("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").stdout.split()[1]

    refused = enroll(site, "--accept-new", become=node.password)
    assert (refused.rc, refused.problem["code"]) == (4, "host-key-changed")
    assert old in refused.problem["evidence"]
    assert new in refused.problem["evidence"]
    assert f"gpustrap enroll --replace {node.name}" in refused.problem["remedy"]

    replaced = enroll(site, "--replace", node.name, become=node.password)
    assert replaced.rc == 0, replaced.stderr
    assert replaced.node["host_key"] == {"type": "ssh-ed25519", "fingerprint": new, "was": "replaced"}


def test_a_wrong_ssh_password(node, site):
    answer = enroll(site, "--accept-new", password="not-it")
    assert (answer.rc, answer.problem["code"]) == (4, "auth-failed")
    assert "password: not accepted" in answer.problem["evidence"]
    assert node.exec(f"test -e ~{node.user}/.ssh/authorized_keys").returncode != 0


def test_a_wrong_sudo_password_is_tried_once(node, site):
    begun = node.exec("sleep 1; date '+%F %T'").stdout.strip()
    answer = enroll(site, "--accept-new", password=node.password, become="not-it")
    assert (answer.rc, answer.problem["code"]) == (4, "sudo-password-wrong")
    assert "--become-password-fd" in answer.problem["remedy"]
    failures = "pam_unix(sudo:auth): authentication failure"
    assert node.exec(f"journalctl --no-pager --since {begun!r}").stdout.count(failures) == 1


def test_sudo_wants_a_password_and_there_is_none(node, site):
    assert enroll(site, "--accept-new", password=node.password).rc == 0
    answer = enroll(site)
    assert (answer.rc, answer.problem["code"]) == (4, "sudo-password-missing")
    assert "-K" in answer.problem["remedy"]


def test_not_in_sudoers(node, site):
    node.exec(f"gpasswd -d {node.user} sudo")
    answer = enroll(site, "--accept-new", password=node.password)
    assert (answer.rc, answer.problem["code"]) == (4, "sudo-not-allowed")
    assert f"usermod -aG sudo {node.user}" in answer.problem["remedy"]


@pytest.mark.slow
def test_no_sudo_on_the_node(node, site):
    node.exec("mv /usr/bin/sudo /usr/bin/not-sudo")
    answer = enroll(site, "--accept-new", password=node.password)
    assert (answer.rc, answer.problem["code"]) == (4, "sudo-missing")


@pytest.mark.slow
def test_requiretty(node, site):
    write(node, "/etc/sudoers.d/tty", "Defaults requiretty")
    answer = enroll(site, "--accept-new", password=node.password)
    assert answer.rc == 0, answer.stderr
    assert answer.node["sudo"] == {"escalation": "password", "command": "sudo", "requiretty": True}
    wrong = enroll(site, become="not-it")
    assert (wrong.rc, wrong.problem["code"]) == (4, "sudo-password-wrong")
    lifted = enroll(site, "--passwordless-sudo", become=node.password)
    assert lifted.node["sudo"] == {"escalation": "nopasswd", "command": "sudo", "requiretty": False}


@pytest.mark.slow
def test_a_broken_sudoers_is_never_made(node, site):
    """A rule behind ours wins; then our file is taken back, and sudo works as before."""
    write(node, "/etc/sudoers.d/zz-last", f"{node.user} ALL=(ALL:ALL) PASSWD: ALL")
    answer = enroll(site, "--accept-new", "--passwordless-sudo", password=node.password)
    assert (answer.rc, answer.problem["code"]) == (4, "passwordless-sudo-failed")
    assert "gpustrap" not in node.exec("ls /etc/sudoers.d").stdout
    assert node.exec("visudo -c").returncode == 0


def test_a_bare_node_gets_python(make_node, make_site, tmp_path):
    node = make_node(bare=True)
    site = make_site(tmp_path, node)
    assert node.exec("test -e /usr/bin/python3").returncode != 0
    answer = enroll(site, "--accept-new", password=node.password)
    assert answer.rc == 0, answer.stderr
    assert "python3 installed" in answer.node["changes"]
    assert node.exec("python3 -c 'print(1)'").stdout.strip() == "1"


@pytest.mark.slow
def test_an_authorized_keys_file_without_a_last_newline_is_not_broken(node, site):
    home = f"/home/{node.user}"
    mine = f"{home}/.ssh/authorized_keys"
    node.exec(f"install -d -m 700 {home}/.ssh; printf 'ssh-ed25519 AAAAmine me' > {mine}; chmod 664 {mine}")
    node.exec(f"chown -R {node.user} {home}/.ssh")
    assert enroll(site, "--accept-new", password=node.password).rc == 0
    lines = node.exec(f"cat {home}/.ssh/authorized_keys").stdout.splitlines()
    assert lines[0] == "ssh-ed25519 AAAAmine me"
    assert len(lines) == 2
    assert node.exec(f"stat -c %a {home}/.ssh/authorized_keys").stdout.strip() == "644"


@pytest.mark.slow
def test_a_full_disk_is_said_and_loses_nothing(node, site):
    home = f"/home/{node.user}"
    node.exec(f"mount -t tmpfs -o size=4k,mode=755,uid=$(id -u {node.user}) tmpfs {home}")
    node.exec(f"head -c 4096 /dev/zero > {home}/fill")
    answer = enroll(site, "--accept-new", password=node.password)
    assert (answer.rc, answer.problem["code"]) == (4, "key-install-failed")
    assert "No space left" in answer.problem["evidence"]


def test_one_dead_node_does_not_stop_the_others(node, site):
    other = site.inventory / "zz-dead.yml"
    other.write_text("all:\n  hosts:\n    dead:\n      ansible_host: 127.0.0.1\n      ansible_port: 1\n")
    answer = enroll(site, "--accept-new", password=node.password)
    assert answer.rc == 4
    assert [n["node"] for n in answer.data["nodes"]] == [node.name]
    assert (answer.problem["code"], answer.problem["subject"]) == ("unreachable", "node dead")
