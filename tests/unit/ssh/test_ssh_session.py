"""Sessions against a real sshd: big data both ways, limits, jump hosts, proxies, and what can go wrong."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpustrap.errors import GpustrapError
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Secrets
from gpustrap.ssh.session import connect


def refused(endpoint, site_hosts, identity, **more):
    with pytest.raises(GpustrapError) as caught:
        connect(endpoint, known_hosts=site_hosts, identity=identity, secrets=Secrets(), **more).close()
    problem = caught.value.problems[0]
    assert problem.subject == "node n1"
    assert problem.exit_code is ExitCode.UNREACHABLE
    assert problem.remedy
    return problem


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_run_gives_rc_stdout_and_stderr(session):
    done = session.run("echo out; echo err >&2; exit 3")
    assert (done.rc, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert session.login == "site key"
    assert session.host_key.how == "known"


def test_a_command_ended_by_a_signal_is_no_success(session):
    assert session.run("kill -9 $$").rc == -1


def test_big_data_both_ways_at_once_does_not_deadlock(session):
    data = os.urandom(6 << 20)
    done = session.run("tee /dev/stderr", stdin=data, timeout=60)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert 0 < len(done.stderr) <= 256 << 10


def test_a_command_that_reads_nothing_of_a_big_stdin_ends(session):
    done = session.run("echo early; exec 0<&-; exit 4", stdin=b"x" * (8 << 20), timeout=30)
    assert (done.rc, done.stdout) == (4, b"early\n")


def test_stdout_over_the_limit_is_refused(session):
    with pytest.raises(GpustrapError) as caught:
        session.run("cat /dev/zero", limit=1 << 20, timeout=30)
    assert caught.value.problems[0].code == "output-too-large"


def test_stdout_of_exactly_the_limit_is_taken(session):
    assert len(session.run("head -c 1048576 /dev/zero", limit=1 << 20).stdout) == 1 << 20


def test_a_time_limit_ends_a_command(session):
    start = time.monotonic()
    with pytest.raises(GpustrapError) as caught:
        session.run("sleep 60", timeout=0.5)
    assert caught.value.problems[0].code == "timeout"
    assert time.monotonic() - start < 5


def test_a_session_runs_many_commands_and_leaks_no_descriptors(session):
    session.run("true")
    before = descriptors()
    for _ in range(6):
        session.run("cat", stdin=b"x" * 1000)
    assert descriptors() <= before


def test_a_broken_connection_says_so(session):
    with pytest.raises(GpustrapError) as caught:
        session.run("kill -9 $PPID; sleep 5", timeout=20)
    assert caught.value.problems[0].code == "connection-lost"


def test_nobody_listens(sshd, tmp_path, site_hosts):
    endpoint = replace(sshd.endpoint(tmp_path), port=1)
    assert refused(endpoint, site_hosts, sshd.key).code == "unreachable"


def test_a_name_that_does_not_exist(sshd, tmp_path, site_hosts):
    endpoint = sshd.endpoint(tmp_path, host="no-such-host.invalid")
    assert refused(endpoint, site_hosts, sshd.key).code == "unreachable"


def test_something_else_listens(sshd, tmp_path, site_hosts):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with closing(server.accept()[0]) as stream:
                stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 200)

        threading.Thread(target=answer, daemon=True).start()
        endpoint = replace(sshd.endpoint(tmp_path), port=server.getsockname()[1])
        assert refused(endpoint, site_hosts, sshd.key, timeout=3).code == "unreachable"


def test_something_listens_and_says_nothing(sshd, tmp_path, site_hosts):
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = replace(sshd.endpoint(tmp_path), port=server.getsockname()[1])
        start = time.monotonic()
        assert refused(endpoint, site_hosts, sshd.key, timeout=1).code in {"timeout", "unreachable"}
        assert time.monotonic() - start < 6


def test_a_key_that_is_not_installed(sshd, tmp_path, site_hosts):
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", tmp_path / "other"], check=True)
    problem = refused(sshd.endpoint(tmp_path), site_hosts, tmp_path / "other")
    assert problem.code == "auth-failed"
    assert "site key: not accepted" in problem.evidence
    assert "gpustrap enroll -k n1" in problem.remedy


def test_a_key_with_a_passphrase_is_named(sshd, tmp_path, site_hosts):
    subprocess.run(["ssh-keygen", "-q", "-N", "secret", "-t", "ed25519", "-f", tmp_path / "locked"], check=True)
    problem = refused(sshd.endpoint(tmp_path), site_hosts, tmp_path / "locked")
    assert "passphrase" in problem.evidence


def test_no_key_at_all(sshd, tmp_path, site_hosts):
    assert "no key" in refused(sshd.endpoint(tmp_path), site_hosts, None).evidence


def test_proxy_jump_verifies_every_machine(sshd, tmp_path, site_hosts):
    jump = f"ProxyJump 127.0.0.3:{sshd.port}"
    endpoint = sshd.endpoint(tmp_path, "Match host 127.0.0.1", jump, "Match all")
    problem = refused(endpoint, site_hosts, sshd.key)
    assert problem.code == "host-key-unknown"
    assert "jump host" in problem.message
    sshd.trust(site_hosts, "127.0.0.3")
    with connect(endpoint, known_hosts=site_hosts, identity=sshd.key, secrets=Secrets()) as session:
        assert session.run("echo $SSH_CONNECTION").rc == 0
        assert session.target.jump
        assert session.target.jump.host == "127.0.0.3"


def test_two_jump_hosts(sshd, tmp_path, site_hosts):
    sshd.trust(site_hosts, "127.0.0.2", "127.0.0.3")
    jump = f"ProxyJump 127.0.0.2:{sshd.port},127.0.0.3:{sshd.port}"
    endpoint = sshd.endpoint(tmp_path, "Match host 127.0.0.1", jump, "Match all")
    with connect(endpoint, known_hosts=site_hosts, identity=sshd.key, secrets=Secrets()) as session:
        assert session.run("echo hello").stdout == b"hello\n"
        assert session.target.jump.host == "127.0.0.3"
        assert session.target.jump.jump.host == "127.0.0.2"


def test_proxy_jump_in_a_circle(sshd, tmp_path, site_hosts):
    endpoint = sshd.endpoint(tmp_path, f"ProxyJump 127.0.0.2:{sshd.port}")
    with pytest.raises(GpustrapError) as caught:
        connect(endpoint, known_hosts=site_hosts, identity=sshd.key, secrets=Secrets())
    assert caught.value.problems[0].code == "ssh-config-broken"


def test_proxy_command(sshd, tmp_path, site_hosts):
    relay = (
        "import socket,sys,threading,os;s=socket.create_connection((sys.argv[1],int(sys.argv[2])));"
        "f=lambda:[s.sendall(d) for d in iter(lambda:os.read(0,65536),bytes())];"
        "threading.Thread(target=f,daemon=True).start();"
        "[os.write(1,d) for d in iter(lambda:s.recv(65536),bytes())]"
    )
    endpoint = sshd.endpoint(tmp_path, f"ProxyCommand python3 -c '{relay}' %h %p")
    with connect(endpoint, known_hosts=site_hosts, identity=sshd.key, secrets=Secrets()) as session:
        data = os.urandom(1 << 20)
        assert session.run("cat", stdin=data).stdout == data


def test_a_proxy_command_that_fails_is_quoted(sshd, tmp_path, site_hosts):
    endpoint = sshd.endpoint(tmp_path, "ProxyCommand echo no way to %h >&2; exit 1")
    problem = refused(endpoint, site_hosts, sshd.key)
    assert problem.code == "unreachable"
    assert "no way to 127.0.0.1" in problem.evidence


def test_a_broken_ssh_configuration_is_quoted(sshd, tmp_path, site_hosts):
    endpoint = sshd.endpoint(tmp_path, "NoSuchOption yes")
    with pytest.raises(GpustrapError) as caught:
        connect(endpoint, known_hosts=site_hosts, identity=sshd.key, secrets=Secrets())
    assert caught.value.problems[0].code == "ssh-config-broken"
    assert "nosuchoption" in caught.value.problems[0].evidence.lower()
