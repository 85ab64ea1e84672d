"""Passwords of the environment reach the verb that needs them and nothing that a verb starts."""

from __future__ import annotations

import os

import pytest

from gpustrap.cli import app as program
from gpustrap.cli.secrets import BECOME_VARIABLE, SSH_VARIABLE, read_secrets


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
