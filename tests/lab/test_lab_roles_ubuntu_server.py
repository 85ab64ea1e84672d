"""Role ubuntu_server on a real node: bare at first, broken on purpose, and never locked out of."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from gpustrap.lab.manager import LabNode, NodeSpec

pytestmark = pytest.mark.slow

HOLD_LOCK = (
    "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(60)"
)
BASE = ["ca-certificates", "python3-apt", "systemd-timesyncd"]
DROP_IN = "/etc/ssh/sshd_config.d/10-gpustrap.conf"


class Server:
    """A Debian 12 node, and site.yml run on it with role ubuntu_server alone."""

    def __init__(self, node: LabNode, directory: Path, play) -> None:
        self.node, self.directory, self.play = node, directory, play
        self.known = f"-o UserKnownHostsFile={directory}/known"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True)
        self.sh("install -d -o ubuntu -m 700 /home/ubuntu/.ssh")
        key = (directory / "key.pub").read_bytes()
        self.sh("cd /home/ubuntu/.ssh && cat >authorized_keys && chown ubuntu authorized_keys", stdin=key)

    def sh(self, command: str, stdin: bytes | None = None) -> str:
        done = self.node.exec(command, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def run(self, *options: str, **variables) -> tuple[int, dict[str, int], str]:
        """Exit code, counts and output of one run."""
        host = {
            "ansible_host": self.node.address,
            "ansible_user": self.node.user,
            "ansible_become_password": self.node.password,
            "ansible_ssh_private_key_file": str(self.directory / "key"),
            "ansible_ssh_common_args": f"{self.known} -o StrictHostKeyChecking=accept-new",
            "gpustrap_roles": ["ubuntu_server"],
            "ubuntu_server_packages": BASE,
            **variables,
        }
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {self.node.name: host}}}), encoding="utf-8")
        played = self.play(inventory, *options)
        return played.rc, played.counts, played.text

    def login(self, *options: str) -> subprocess.CompletedProcess[str]:
        """A new SSH login by the client itself."""
        target = f"{self.node.user}@{self.node.address}"
        argv = ["ssh", "-F", "none", "-o", "BatchMode=yes", *self.known.split(), *options, target, "true"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def server(lab, play_site, tmp_path_factory) -> Server:
    [node] = lab.up([NodeSpec("server", "debian12")])
    return Server(node, tmp_path_factory.mktemp("u"), play_site)


@pytest.fixture(scope="module")
def applied(server) -> Server:
    """The server after its first check and its first real run."""
    before = server.sh("dpkg-query -W; ls /var/lib/apt/lists; find /etc -type f -newer /etc/hostname")
    code, counts, output = server.run("--check", "--diff")
    assert (code, counts.get("failed")) == (0, 0), output
    assert "would follow: python3-apt" in output, output
    assert server.sh("dpkg-query -W; ls /var/lib/apt/lists; find /etc -type f -newer /etc/hostname") == before
    code, _counts, output = server.run()
    assert code == 0, output
    return server


def test_second_run_changes_nothing(applied):
    code, counts, output = applied.run()
    assert (code, counts["changed"]) == (0, 0), output
    assert "ConditionVirtualization=!container" in output


def test_interrupted_dpkg_is_finished(applied):
    applied.sh("touch /var/lib/dpkg/updates/0001")
    code, counts, output = applied.run("--diff")
    assert (code, counts["changed"]) == (0, 1), output
    assert "finished an interrupted dpkg run" in output
    assert applied.sh("ls /var/lib/dpkg/updates") == ""


def test_held_lock_is_waited_for_and_named(applied):
    applied.sh(f'systemd-run --quiet --unit=holder /usr/bin/python3 -c "{HOLD_LOCK}"')
    try:
        code, _counts, output = applied.run(ubuntu_server_lock_timeout=3)
    finally:
        applied.sh("systemctl stop holder")
    assert code != 0
    assert re.search(r"process \d+ \(/usr/bin/python3 .* holds /var/lib/dpkg/lock-frontend", output), output
    assert applied.sh("test -e /var/lib/dpkg/lock-frontend && echo there") == "there"


def test_installing_never_removes(applied):
    code, _counts, output = applied.run(ubuntu_server_packages=[*BASE, "chrony"])
    assert code != 0
    assert "installing would remove systemd-timesyncd" in output
    assert applied.sh("dpkg-query -Wf '${db:Status-Status}' systemd-timesyncd") == "installed"


def test_misspelt_package_is_named(applied):
    code, _counts, output = applied.run(ubuntu_server_packages=[*BASE, "no-such-package"])
    assert code != 0
    assert "apt cannot install no-such-package" in output
    assert "Unable to locate package no-such-package" in output


def test_ssh_hardening_is_refused_over_a_password_login(applied):
    code, _counts, output = applied.run(ubuntu_server_ssh_hardening=True, ansible_password=applied.node.password)
    assert code != 0
    assert "not ansible_password" in output
    assert applied.sh(f"test -e {DROP_IN} || echo absent") == "absent"


def test_ssh_hardening_keeps_keys_and_refuses_passwords(applied):
    key = ("-i", str(applied.directory / "key"))
    only_password = ("-o", "PubkeyAuthentication=no")
    assert "password" in applied.login(*only_password).stderr
    code, _counts, output = applied.run(ubuntu_server_ssh_hardening=True)
    assert code == 0, output
    assert applied.login(*key).returncode == 0
    assert "Permission denied (publickey)" in applied.login(*only_password).stderr
    code, _counts, output = applied.run(ubuntu_server_ssh_hardening=False)
    assert code == 0, output
    assert applied.sh(f"test -e {DROP_IN} || echo absent") == "absent"
    assert "password" in applied.login(*only_password).stderr
