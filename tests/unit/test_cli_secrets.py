"""Passwords of the environment reach the verb that needs them and nothing that a verb starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpustrap.cli import app as program
from gpustrap.cli.secrets import BECOME_VARIABLE, SSH_VARIABLE, read_secrets
from gpustrap.errors import GpustrapError
from gpustrap.exitcodes import ExitCode


@pytest.mark.parametrize("verb", ["lab", "init", "plan"])
def test_no_verb_runs_with_passwords_in_its_environment(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setenv(SSH_VARIABLE, "planted-ssh")
    monkeypatch.setenv(BECOME_VARIABLE, "planted-sudo")
    seen: list[str] = []
    monkeypatch.setattr(program, "app", lambda **_more: seen.extend(os.environ.values()))
    monkeypatch.setattr("sys.argv", ["gpustrap", verb])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0
    assert seen
    assert not [value for value in seen if "planted" in value]
    secrets = read_secrets()
    assert (secrets.ssh_password, secrets.become_password) == ("planted-ssh", "planted-sudo")
    assert read_secrets().ssh_password is None  # handed out once


def test_the_environment_is_emptied_without_the_program_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SSH_VARIABLE, "planted-ssh")
    assert read_secrets().become_password == "planted-ssh"  # the sudo password defaults to it
    assert SSH_VARIABLE not in os.environ


def descriptor(text: str) -> int:
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    return reading


def test_a_descriptor_gives_its_first_line() -> None:
    assert read_secrets(password_fd=descriptor("planted pw\nmore\n")).ssh_password == "planted pw"


@pytest.mark.parametrize("text", ["", "\n", "\nsecond line"])
@pytest.mark.parametrize("option", ["password_fd", "become_password_fd"])
def test_an_empty_descriptor_is_refused(text: str, option: str) -> None:
    number = descriptor(text)
    with pytest.raises(GpustrapError) as caught:
        read_secrets(**{option: number})
    (problem,) = caught.value.problems
    assert problem.message == f"descriptor {number} is empty"
    assert problem.exit_code is ExitCode.USAGE
    assert f"--{option.replace('_', '-')} {number}" in problem.remedy


@pytest.mark.parametrize(("option", "remedy"), [("-k", "--password-fd 3 3< file"), ("-K", "--become-password-fd 3 3<")])
def test_without_a_terminal_nothing_is_asked(tmp_path: Path, option: str, remedy: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpustrap", "enroll", option],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,  # no /dev/tty either
        check=False,
    )
    assert done.returncode == ExitCode.USAGE
    assert "no terminal to ask on" in done.stderr
    assert remedy in done.stderr
