"""This machine's own shell: what it gives, and that neither a big answer nor a hanging command holds it up."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpustrap.commands import reach
from gpustrap.commands.probe import NODE_PACKAGE
from gpustrap.errors import GpustrapError
from gpustrap.model.node import Access, Endpoint, Escalation, Node, Secrets
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.ssh import local, payload
from gpustrap.ssh.local import LocalShell

BOX = Node(Endpoint("box", "box", local=True), (), Request())
# A sudo that wants a password, as over SSH: from stdin, once.
SUDO = """#!/bin/sh
case "$1" in
--version) echo "Sudo version 1.9.16"; exit 0;;
-k) [ "$2" = -n ] && { echo "sudo: a password is required" >&2; exit 1; };;
esac
while [ "$1" != -- ] && [ $# -gt 0 ]; do [ "$1" = -p ] && printf %s "$2" >&2; shift; done
shift
read -r word
[ "$word" = right ] || { echo "sudo: 1 incorrect password attempt" >&2; exit 1; }
exec "$@"
"""


@pytest.fixture(autouse=True)
def fresh() -> None:
    local.find_local_access.cache_clear()
    local._survey.cache_clear()


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Not root, and sudo asks."""
    (tmp_path / "sudo").write_text(SUDO)
    (tmp_path / "id").write_text("#!/bin/sh\n[ $1 = -u ] && echo 1000 || echo ann\n")
    for name in ("sudo", "id"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(local, "PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_both_outputs_and_the_exit_status_come_back() -> None:
    done = LocalShell("box").run("cat; echo wrong >&2; exit 3", stdin=b"right")
    assert (done.rc, done.stdout, done.stderr) == (3, b"right", b"wrong\n")


def test_more_than_a_pipe_holds_goes_both_ways() -> None:
    much = os.urandom(3 << 20)
    assert LocalShell("box").run("cat", stdin=much).stdout == much


def test_a_command_that_reads_nothing_is_no_trouble() -> None:
    assert LocalShell("box").run("echo done", stdin=bytes(1 << 20)).stdout == b"done\n"


def test_what_prints_without_end_is_stopped() -> None:
    with pytest.raises(GpustrapError) as caught:
        LocalShell("box").run("yes", limit=1000, timeout=20)
    assert caught.value.problems[0].code == "output-too-large"


def test_what_hangs_is_given_up_with_all_it_started(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(GpustrapError) as caught:
        LocalShell("box").run(f"sleep 60 & echo $! > {tmp_path}/pid; wait", timeout=1)
    assert caught.value.problems[0].code == "timeout"
    assert time.monotonic() - start < 10
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_neither_a_virtual_environment_nor_gpustraps_own_umask_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/home/ann/venv/bin")
    monkeypatch.setenv("VIRTUAL_ENV", "/home/ann/venv")
    before = os.umask(0o077)
    try:
        done = LocalShell("box").run("echo $PATH$VIRTUAL_ENV; umask; pwd; ps -o tty= -p $$")
    finally:
        os.umask(before)
    assert done.stdout.decode().split() == [local.PATH, "0022", "/", "?"]


def test_the_probe_runs_here_as_it_does_there(person: Path, tmp_path: Path) -> None:
    secrets = Secrets(become_password="right")
    access = reach.access_of(Site(tmp_path), BOX, secrets)
    assert access == Access(Escalation.PASSWORD, python=local.PYTHON)
    with reach.open_shell(Site(tmp_path), BOX, secrets) as shell:
        answer = payload.ask(
            shell,
            access=access,
            secrets=secrets,
            code=payload.bundle(NODE_PACKAGE),
            entry="gpustrap_node.main",
            request={"verb": "ledger-read", "args": {}, "root": str(tmp_path)},
        )
    assert answer == {"ok": True, "data": {"ledger": None, "open_run": None, "unknown": ""}}


def test_sudo_is_asked_whether_it_asks(person: Path) -> None:
    assert local.sudo_asks("box")


def test_a_wrong_password_is_tried_once_and_said(person: Path, tmp_path: Path) -> None:
    with pytest.raises(GpustrapError) as caught:
        reach.access_of(Site(tmp_path), BOX, Secrets(become_password="wrong"))
    assert caught.value.problems[0].code == "sudo-password-wrong"


def test_no_sudo_says_how_to_get_it(person: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (person / "sudo").unlink()
    for name in ("sh", "env", "head", "date", "tr"):
        (person / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setattr(local, "PATH", str(person))
    monkeypatch.setattr("gpustrap.ssh.survey._SCRIPT", local_script())
    assert not local.sudo_asks("box")
    with pytest.raises(GpustrapError) as caught:
        reach.access_of(Site(tmp_path), BOX, Secrets())
    (problem,) = caught.value.problems
    assert problem.code == "sudo-missing"
    assert "apt-get install sudo" in problem.remedy
    assert "enroll" not in problem.remedy


def local_script() -> str:
    """The survey's script without the directories of root's programs, where this machine's own sudo may be."""
    from gpustrap.ssh.survey import _SCRIPT

    return _SCRIPT.replace('PATH="$PATH:/usr/sbin:/sbin"', "")


def test_a_sudo_that_wants_a_terminal_is_not_given_one() -> None:
    with pytest.raises(GpustrapError) as caught:
        LocalShell("box").run("true", pty=True)
    assert caught.value.problems[0].code == "sudo-requiretty"
