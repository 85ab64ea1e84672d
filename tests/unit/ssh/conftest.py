"""A real sshd on loopback, on ports and files of the test's own, and the endpoints that lead to it."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpustrap.model.node import Access, Endpoint, Escalation, Secrets
from gpustrap.ssh.known_hosts import append, fingerprint
from gpustrap.ssh.session import Session, connect

KEY_TYPES = ("ed25519", "ecdsa", "rsa")


def make_key(path: Path, key_type: str = "ed25519") -> None:
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", "test", "-t", key_type, "-f", path], check=True)


def public_blob(path: Path) -> tuple[str, bytes]:
    import base64

    kind, text = path.with_name(path.name + ".pub").read_text().split()[:2]
    return kind, base64.b64decode(text)


@dataclass
class Sshd:
    """A running sshd and what a client needs for it."""

    root: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def key(self) -> Path:
        return self.root / "client_key"

    def host_key(self, key_type: str = "ed25519") -> tuple[str, bytes]:
        return public_blob(self.root / f"host_{key_type}")

    def fingerprint(self, key_type: str = "ed25519") -> str:
        return fingerprint(self.host_key(key_type)[1])

    def endpoint(self, tmp_path: Path, *config: str, host: str = "127.0.0.1", name: str = "n1") -> Endpoint:
        file = tmp_path / f"ssh_config_{len(list(tmp_path.glob('ssh_config_*')))}"
        lines = [
            *config,
            "IdentityFile none",
            "IdentityAgent none",
            f"UserKnownHostsFile {tmp_path}/user_known_hosts",
            "GlobalKnownHostsFile /dev/null",
        ]
        file.write_text("\n".join(lines) + "\n")
        return Endpoint(name=name, host=host, port=self.port, user=getpass.getuser(), ssh_args=("-F", str(file)))

    def trust(self, file: Path, *names: str, key_type: str = "ed25519") -> None:
        for name in names or ("127.0.0.1",):
            append(file, f"[{name}]:{self.port}", *self.host_key(key_type))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def locked() -> bool:
    """Whether this account has no password at all, as root of a fresh server: sshd then lets it in through PAM only."""
    if os.getuid() != 0:
        return False
    me = pwd.getpwuid(0).pw_name
    lines = Path("/etc/shadow").read_text(encoding="utf-8").splitlines()
    return any(line.startswith(f"{me}:!") for line in lines)


def unpunished(binary: str, host_key: Path) -> tuple[str, ...]:
    """OpenSSH 9.8 and newer shut out an address that failed to log in, which is what many tests here do."""
    option = "PerSourcePenalties no"
    known = subprocess.run([binary, "-t", "-f", "/dev/null", "-h", host_key, "-o", option], capture_output=True)
    return (option,) if known.returncode == 0 else ()


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    binary = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if binary is None:
        pytest.fail("these tests need sshd: apt-get install openssh-server")
    root = tmp_path_factory.mktemp("sshd")
    for key_type in KEY_TYPES:
        make_key(root / f"host_{key_type}", key_type)
    make_key(root / "client_key")
    shutil.copy(root / "client_key.pub", root / "authorized_keys")
    port = free_port()
    config = [
        f"Port {port}",
        *(f"ListenAddress 127.0.0.{i}" for i in (1, 2, 3)),
        *(f"HostKey {root}/host_{key_type}" for key_type in KEY_TYPES),
        f"AuthorizedKeysFile {root}/authorized_keys",
        f"PidFile {root}/pid",
        "StrictModes no",
        f"UsePAM {'yes' if locked() else 'no'}",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "MaxStartups 100",
        *unpunished(binary, root / "host_ed25519"),
    ]
    (root / "sshd_config").write_text("\n".join(config) + "\n")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (root / "log").open("wb") as log:
        process = subprocess.Popen([binary, "-D", "-e", "-f", root / "sshd_config"], stderr=log)
    try:
        _wait_for(port, process, root / "log")
        yield Sshd(root, port, process)
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"sshd did not start: {log.read_text()}")


@pytest.fixture
def site_hosts(tmp_path: Path, sshd: Sshd) -> Path:
    """The site's known_hosts, which knows the sshd."""
    file = tmp_path / "site" / "known_hosts"
    sshd.trust(file)
    return file


@pytest.fixture
def session(sshd: Sshd, tmp_path: Path, site_hosts: Path) -> Iterator[Session]:
    endpoint = sshd.endpoint(tmp_path)
    with connect(endpoint, known_hosts=site_hosts, identity=sshd.key, secrets=Secrets()) as opened:
        yield opened


@pytest.fixture
def root_access() -> Access:
    return Access(Escalation.ROOT, python=shutil.which("python3") or "/usr/bin/python3")


@pytest.fixture
def package(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a node package ``prog`` whose ``main.py`` has the given text."""

    def make(text: str, **more: str) -> Path:
        directory = tmp_path / "prog"
        directory.mkdir()
        (directory / "__init__.py").write_text("")
        for name, source in {"main": text, **more}.items():
            (directory / f"{name}.py").write_text(source)
        return directory

    return make
