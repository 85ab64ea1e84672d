"""A program on the node in one round trip: noise, limits, hostile answers, and sudo with its ways of saying no."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpustrap.errors import GpustrapError
from gpustrap.model.node import Access, Escalation, Secrets
from gpustrap.ssh import payload, sudo
from gpustrap.ssh.config import Target
from gpustrap.ssh.shell import Completed

ECHO = "def main(request):\n    return {'ok': True, 'data': request}\n"
WHO = "import os\ndef main(request):\n    return {'ok': True, 'data': os.environ.get('SUDO_RAN', 'nobody')}\n"


def ask(session, access, package, request=None, *, password=None, **more):
    return payload.ask(
        session,
        access=access,
        secrets=Secrets(become_password=password),
        code=payload.bundle(package),
        entry="prog.main",
        request=request or {},
        **{"timeout": 30, **more},
    )


def problem(session, access, package, **more):
    with pytest.raises(GpustrapError) as caught:
        ask(session, access, package, **more)
    return caught.value.problems[0]


def test_a_request_and_its_answer(session, root_access, package):
    request = {"verb": "facts", "args": {"text": "ü\"'\\\n$HOME `id` !"}}
    assert ask(session, root_access, package(ECHO), request) == {"ok": True, "data": request}


def test_modules_import_each_other_and_see_nothing_of_the_nodes_packages(session, root_access, package):
    prog = package(
        "from . import other\nimport prog.other as same\ndef main(request):\n    return {'ok': other is same}\n",
        other="try:\n    import pytest\nexcept ImportError:\n    pass\nelse:\n    raise SystemExit(9)\n",
    )
    assert ask(session, root_access, prog) == {"ok": True}


def test_big_request_and_big_answer(session, root_access, package):
    request = {"blob": os.urandom(1 << 20).hex()}
    assert ask(session, root_access, package(ECHO), request)["data"] == request


def test_stray_prints_do_no_harm(session, root_access, package):
    text = "import os\nprint('noise')\ndef main(request):\n    print('x' * 9000)\n    os.write(1, b'y' * 9000)\n"
    text += "    return {'ok': 1}\n"
    assert ask(session, root_access, package(text)) == {"ok": 1}


def test_a_program_that_fails_says_where(session, root_access, package):
    answer = ask(session, root_access, package("def main(request):\n    return {}['missing']\n"))
    assert answer["ok"] is False
    assert answer["error"]["code"] == "node-program-failed"
    assert "<gpustrap prog.main>" in answer["error"]["message"]
    assert "KeyError" in answer["error"]["message"]


def test_a_program_that_dies_is_no_answer(session, root_access, package):
    found = problem(session, root_access, package("import os\ndef main(request):\n    os._exit(3)\n"))
    assert found.code == "answer-unreadable"
    assert "ended with 3" in found.message


def test_a_program_that_hangs_is_ended_on_the_node_too(session, root_access, package, tmp_path):
    text = f"import os,time\ndef main(request):\n    open({str(tmp_path / 'pid')!r},'w').write(str(os.getpid()))\n"
    text += "    time.sleep(90)\n"
    assert problem(session, root_access, package(text), timeout=5).code == "timeout"
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the program is still there"
        time.sleep(0.1)


def test_an_answer_over_the_limit(session, root_access, package):
    text = "def main(request):\n    return {'ok': 'x' * 5000000}\n"
    assert problem(session, root_access, package(text), limit=1 << 20).code == "output-too-large"


def test_python_missing(session, package):
    access = Access(Escalation.ROOT, python="/usr/bin/python3.0")
    found = problem(session, access, package(ECHO))
    assert (found.code, found.remedy) == ("python-missing", "gpustrap enroll n1")


def test_the_oldest_supported_python_runs_it(session, package):
    python = next(Path.home().glob(".pyenv/versions/3.8.*/bin/python"), None) or shutil.which("python3.8")
    if not python:
        pytest.skip("no Python 3.8 on this machine")
    access = Access(Escalation.ROOT, python=str(python))
    assert ask(session, access, package(ECHO), {"a": 1}) == {"ok": True, "data": {"a": 1}}


def test_the_loader_is_python_38():
    import ast

    ast.parse((Path(payload.__file__).parent / "node_loader.py").read_text(), feature_version=(3, 8))


def test_the_same_files_give_the_same_bundle(package):
    prog = package(ECHO)
    assert payload.bundle(prog) == payload.bundle(prog)


class FakeSession:
    """Answers with bytes, as a hostile node may. ``MARKER`` stands for the marker of the call."""

    target = Target(node="n1", host="n1", port=22, user="me", key_name="n1")

    def __init__(self, stdout: bytes, stderr: bytes = b"", rc: int = 0) -> None:
        self.done = Completed(rc, stdout, stderr)

    def run(self, command, *, stdin=b"", feed=None, **_more):
        header = next(line for line in stdin.splitlines() if line.startswith(b'{"code"'))
        marker = json.loads(header)["marker"].encode()
        return Completed(self.done.rc, self.done.stdout.replace(b"MARKER", marker), self.done.stderr)


@pytest.mark.parametrize(
    "stdout",
    [
        b"",
        b"nothing of ours",
        b"\nMARKER 10\n{}",
        b"\nMARKER 99999999999999\n{}",
        b"\nMARKER -2\n{}",
        b"\nMARKER 4\nnull",
        b"\nMARKER 2\n[]",
        b"\nMARKER 9\n{'a': 1} ",
        b'\nMARKER 8\n{"a":NaN',
        b'\nMARKER 9\n{"a":NaN}',
        b"\nMARKER 4\n\xff\xfe\x00\x01",
        b"\nMARKER 200000\n" + b"[" * 200000,
        b'\nMARKER 9006\n{"a":' + b"9" * 9000 + b"}",
    ],
)
def test_hostile_answers(stdout, root_access, package):
    found = problem(FakeSession(stdout), root_access, package(ECHO))
    assert found.code == "answer-unreadable"


def test_noise_before_and_behind_the_answer(root_access, package):
    stdout = b'Welcome!\r\n{"ok": false}\nno newline\nMARKER 12\n{"ok": true}\nlogout\n'
    assert ask(FakeSession(stdout), root_access, package(ECHO)) == {"ok": True}


# A sudo that behaves, on its outside, as the real one does; the lab tests use the real one.
FAKE_SUDO = r"""#!/bin/sh
echo "$@" >> {log}
prompt=; stdin=no
while :; do case $1 in
  -k) shift;; -n) shift;; -S) stdin=yes; shift;; -p) prompt=$2; shift 2;; --) shift; break;;
esac; done
fail() {{ echo "sudo: $1" >&2; exit 1; }}
{check}
if [ {mode} = password ]; then
  [ $stdin = yes ] || fail "a password is required"
  for try in 1 2 3; do
    printf '%s' "$prompt" >&2
    IFS= read -r line || fail "no password was provided"
    echo "try:$line" >> {log}
    [ "$line" = right ] && {{ SUDO_RAN=password exec "$@"; }}
    sleep 0.2; echo 'Sorry, try again.' >&2
  done
  fail "3 incorrect password attempts"
fi
SUDO_RAN=nopasswd exec "$@"
"""


@pytest.fixture
def fake_sudo(tmp_path):
    def make(mode: str, check: str = "") -> str:
        file = tmp_path / "sudo"
        file.write_text(FAKE_SUDO.format(log=tmp_path / "sudo.log", mode=mode, check=check))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)

    return make


def test_sudo_without_password(session, package, fake_sudo):
    access = Access(Escalation.NOPASSWD, become_exe=fake_sudo("free"), python=sys.executable)
    assert ask(session, access, package(WHO))["data"] == "nopasswd"


def test_sudo_with_password(session, package, fake_sudo, tmp_path):
    access = Access(Escalation.PASSWORD, become_exe=fake_sudo("password"), python=sys.executable)
    assert ask(session, access, package(WHO), password="right")["data"] == "password"
    assert "right" not in (tmp_path / "sudo.log").read_text().splitlines()[0]  # never on argv


def test_a_wrong_password_is_tried_once_and_nothing_else_is_ever_taken_for_one(session, package, fake_sudo, tmp_path):
    access = Access(Escalation.PASSWORD, become_exe=fake_sudo("password"), python=sys.executable)
    found = problem(session, access, package(WHO), password="wrong")
    assert found.code == "sudo-password-wrong"
    assert "--become-password-fd" in found.remedy
    tries = [line for line in (tmp_path / "sudo.log").read_text().splitlines() if line.startswith("try:")]
    assert tries == ["try:wrong"]


def test_a_password_that_is_python_is_not_run(session, package, fake_sudo, tmp_path):
    """Sudo asks for none although the site thinks so: the line then reaches the loader, which throws it away."""
    access = Access(Escalation.PASSWORD, become_exe=fake_sudo("free"), python=sys.executable)
    password = f"open({str(tmp_path / 'pwned')!r},'w')"
    assert ask(session, access, package(WHO), password=password)["data"] == "nopasswd"
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(("escalation", "mode"), [(Escalation.NOPASSWD, "password"), (Escalation.PASSWORD, "free")])
def test_a_password_that_is_missing(session, package, fake_sudo, escalation, mode):
    access = Access(escalation, become_exe=fake_sudo(mode), python=sys.executable)
    assert problem(session, access, package(WHO)).code == "sudo-password-missing"


def test_requiretty_is_met_with_a_terminal_of_our_own(session, package, fake_sudo):
    check = '(: < /dev/tty) 2>/dev/null || fail "sorry, you must have a tty to run sudo"'
    plain = Access(Escalation.PASSWORD, become_exe=fake_sudo("password", check), python=sys.executable)
    prog = package(ECHO)
    assert problem(session, plain, prog, password="right").code == "sudo-requiretty"
    with_tty = Access(Escalation.PASSWORD, plain.become_exe, requiretty=True, python=sys.executable)
    request = {"blob": os.urandom(300000).hex()}
    assert ask(session, with_tty, prog, request, password="right")["data"] == request
    assert problem(session, with_tty, prog, password="wrong").code == "sudo-password-wrong"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("sudo: a password is required", sudo.Refusal.PASSWORD_NEEDED),
        ("sudo: interactive authentication is required", sudo.Refusal.PASSWORD_NEEDED),
        ("sudo: a terminal is required to read the password; either use …", sudo.Refusal.PASSWORD_NEEDED),
        ("bob is not in the sudoers file.", sudo.Refusal.NOT_ALLOWED),
        ("Sorry, user bob is not allowed to execute '/usr/bin/id' as root on n1.", sudo.Refusal.NOT_ALLOWED),
        ("Sorry, user bob may not run sudo on n1.", sudo.Refusal.NOT_ALLOWED),
        ("sudo: I'm sorry bob. I'm afraid I can't do that", sudo.Refusal.NOT_ALLOWED),
        ("sudo: sorry, you must have a tty to run sudo", sudo.Refusal.REQUIRETTY),
        (
            "Sorry, try again.\nsudo: no password was provided\nsudo: 1 incorrect password attempt",
            sudo.Refusal.PASSWORD_WRONG,
        ),
        ("env: 'sudo': No such file or directory", sudo.Refusal.MISSING),
        ("bash: line 1: sudo: command not found", sudo.Refusal.MISSING),
        ("sudo: unable to resolve host n1: Name or service not known", None),
        ("", None),
    ],
)
def test_what_sudo_says(words, reason):
    assert sudo.why(words) is reason


def test_the_command_line_survives_other_shells():
    line = payload._ONE_LINER.format(ready="a", sentinel="b")
    assert not set(line) & set("'\\!\n$`")
    assert subprocess.run([sys.executable, "-IS", "-c", line], input=b"", capture_output=True).returncode == 0
