"""The real ssh client, called as Ansible calls it, enters jump hosts with the site's key and the site's known hosts."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpustrap.converge.session import Target, connection_variables
from gpustrap.model.node import Access, Endpoint, Escalation
from gpustrap.ssh.jump_config import jump_config


@pytest.fixture
def site_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "my 100% site"
    directory.mkdir()
    return directory


def ssh(endpoint: Endpoint, known_hosts: Path, identity: Path) -> subprocess.CompletedProcess[str]:
    text = jump_config(endpoint, known_hosts=known_hosts, identity=identity)
    config = known_hosts.parent.with_name("config")
    config.write_text(text)
    target = Target(endpoint, Access(Escalation.ROOT))
    variables = connection_variables(target, known_hosts, identity, ("-F", str(config)))
    key = f'IdentityFile="{variables["ansible_ssh_private_key_file"]}"'
    arguments = ["-o", "BatchMode=yes", "-o", key, "-p", str(endpoint.port), "-l", str(endpoint.user)]
    argv = ["ssh", *shlex.split(variables["ansible_ssh_args"]), *arguments, endpoint.host, "echo hello"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("hops", [["127.0.0.3"], ["127.0.0.2", "127.0.0.3"]], ids=["one", "two"])
@pytest.mark.parametrize("where", ["configuration", "arguments"])
def test_jump_hosts_are_entered(sshd, tmp_path, site_directory, where, hops):
    jump = ",".join(f"{hop}:{sshd.port}" for hop in hops)
    lines = ["Match host 127.0.0.1", f"ProxyJump {jump}", "Match all"]
    endpoint = sshd.endpoint(tmp_path, *(lines if where == "configuration" else ()))
    if where == "arguments":
        endpoint = replace(endpoint, ssh_args=(*endpoint.ssh_args, "-J", jump))
    identity = site_directory / "id_ed25519"
    identity.write_bytes(sshd.key.read_bytes())
    identity.chmod(0o600)
    known_hosts = site_directory / "known_hosts"
    sshd.trust(known_hosts, "127.0.0.1", *hops[1:])
    unknown = ssh(endpoint, known_hosts, identity)
    assert unknown.returncode == 255
    assert "Host key verification failed" in unknown.stderr
    sshd.trust(known_hosts, hops[0])
    done = ssh(endpoint, known_hosts, identity)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_the_hosts_and_keys_of_the_users_configuration_count_for_a_jump_host(sshd, tmp_path, site_directory):
    lines = ["Match host 127.0.0.1", "ProxyJump bastion", "Host bastion", f"HostName 127.0.0.3\nPort {sshd.port}"]
    endpoint = sshd.endpoint(tmp_path, *lines, f"IdentityFile {sshd.key}", "Match all")
    sshd.trust(tmp_path / "user_known_hosts", "127.0.0.3")
    known_hosts = site_directory / "known_hosts"
    sshd.trust(known_hosts)
    strange = site_directory / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", strange], check=True)
    done = ssh(replace(endpoint, private_key=str(sshd.key)), known_hosts, strange)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_without_jump_host_the_users_configuration_is_left_to_ssh(sshd, tmp_path, site_hosts):
    assert jump_config(sshd.endpoint(tmp_path), known_hosts=site_hosts, identity=sshd.key) == ""
    through_command = sshd.endpoint(tmp_path, "ProxyCommand nc %h %p")
    assert jump_config(through_command, known_hosts=site_hosts, identity=sshd.key) == ""
