"""What the program takes over from the shell it is called in."""

from __future__ import annotations

import os

import pytest

from gpustrap.cli.app import drop_ansible_settings


def test_ansible_settings_of_the_shell_do_not_reach_the_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = {"ANSIBLE_REMOTE_USER": "somebody", "ANSIBLE_VAULT_PASSWORD_FILE": "vault", "HOME": "/root"}
    monkeypatch.setattr(os, "environ", shell)
    drop_ansible_settings()
    assert shell == {"ANSIBLE_VAULT_PASSWORD_FILE": "vault", "HOME": "/root"}
