"""Logging in against a server of our own: which methods are tried, in which order, and how often."""

from __future__ import annotations

import socket
import subprocess
import threading
from contextlib import closing

import paramiko
import pytest

from gpustrap.errors import GpustrapError
from gpustrap.model.node import Endpoint, Secrets
from gpustrap.ssh.session import connect
from gpustrap.ssh.trust import Trust


class Server(paramiko.ServerInterface):
    """Takes the password ``right`` by the methods it is given, and keys with the blobs it is given."""

    def __init__(self, methods: str, keys: tuple[bytes, ...] = (), *, both: bool = False) -> None:
        self.methods, self.keys, self.both = methods, keys, both
        self.tried: list[str] = []

    def get_allowed_auths(self, username):
        return self.methods

    def check_auth_password(self, username, password):
        self.tried.append("password")
        good = "password" in self.methods.split(",") and password == "right"
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_auth_publickey(self, username, key):
        self.tried.append("publickey")
        if key.asbytes() not in self.keys:
            return paramiko.AUTH_FAILED
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL if self.both else paramiko.AUTH_SUCCESSFUL

    def check_auth_interactive(self, username, submethods):
        self.tried.append("keyboard-interactive")
        return paramiko.InteractiveQuery("", "", ("Password: ", False))

    def check_auth_interactive_response(self, responses):
        return paramiko.AUTH_SUCCESSFUL if responses == ["right"] else paramiko.AUTH_FAILED


@pytest.fixture
def serve(tmp_path):
    """Starts a server; gives the function that logs in to it once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer(server: Server) -> None:
            with closing(listener.accept()[0]) as stream, closing(paramiko.Transport(stream)) as transport:
                transport.add_server_key(paramiko.ECDSAKey.generate())
                transport.start_server(server=server)
                transport.join(20)

        def log_in(server: Server, *, password=None, identity=None, config=()):
            thread = threading.Thread(target=answer, args=(server,), daemon=True)
            thread.start()
            file = tmp_path / f"config_{threading.get_ident()}_{len(list(tmp_path.iterdir()))}"
            lines = ["IdentityAgent none", "UserKnownHostsFile none", "GlobalKnownHostsFile none", *config]
            file.write_text("\n".join(lines + ([] if config else ["IdentityFile none"])))
            port = listener.getsockname()[1]
            endpoint = Endpoint("n1", "127.0.0.1", port, "me", ssh_args=("-F", str(file)))
            with connect(
                endpoint,
                known_hosts=tmp_path / f"known_{file.name}",
                identity=identity,
                secrets=Secrets(ssh_password=password),
                trust=Trust(accept_new=True),
                timeout=10,
            ) as session:
                return session.login

        yield log_in


def key(path):
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", path], check=True)
    return path, paramiko.PKey.from_path(path).asbytes()


def refused(log_in, server, **how):
    with pytest.raises(GpustrapError) as caught:
        log_in(server, **how)
    assert caught.value.problems[0].code == "auth-failed"
    assert "right" not in str(caught.value.problems[0])
    return caught.value.problems[0]


def test_a_password(serve):
    assert serve(Server("publickey,password"), password="right") == "password"


def test_keyboard_interactive_where_plain_passwords_are_off(serve):
    assert serve(Server("publickey,keyboard-interactive"), password="right") == "password"


@pytest.mark.parametrize("methods", ["password", "keyboard-interactive", "password,keyboard-interactive"])
def test_a_wrong_password_is_tried_once(serve, methods):
    server = Server(methods)
    refused(serve, server, password="wrong")
    assert len([t for t in server.tried if t in methods.split(",")]) == 1


def test_a_node_that_takes_only_keys(serve):
    problem = refused(serve, Server("publickey"), password="right")
    assert "takes no passwords" in problem.evidence


def test_the_sites_key_comes_before_the_password(serve, tmp_path):
    private, blob = key(tmp_path / "id")
    server = Server("publickey,password", (blob,))
    assert serve(server, identity=private, password="right") == "site key"
    assert "password" not in server.tried


def test_keys_of_the_ssh_configuration(serve, tmp_path):
    (_, _), (second, blob) = key(tmp_path / "a"), key(tmp_path / "b")
    config = (f"IdentityFile {tmp_path}/a", f"IdentityFile {tmp_path}/missing", f"IdentityFile {second}")
    assert serve(Server("publickey", (blob,)), config=config) == f"key {second}"


def test_many_keys_leave_room_for_the_password(serve, tmp_path):
    config = tuple(f"IdentityFile {key(tmp_path / str(n))[0]}" for n in range(8))
    server = Server("publickey,password")
    assert serve(server, config=config, password="right") == "password"
    assert server.tried.count("publickey") <= 5


def test_a_node_that_wants_two_things(serve, tmp_path):
    private, blob = key(tmp_path / "id")
    assert serve(Server("publickey,password", (blob,), both=True), identity=private, password="right") == "password"
    problem = refused(serve, Server("publickey,password", (blob,), both=True), identity=private)
    assert "also asks for" in problem.evidence


def test_a_smart_card_in_the_configuration_is_named(serve):
    config = ("IdentityFile none", "PKCS11Provider /usr/lib/opensc-pkcs11.so")
    assert "PKCS11Provider" in refused(serve, Server("publickey"), config=config).evidence


def test_a_key_on_hardware_is_named(serve, tmp_path):
    (tmp_path / "id_sk").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
    assert "id_sk" in refused(serve, Server("publickey"), config=(f"IdentityFile {tmp_path}/id_sk",)).evidence
