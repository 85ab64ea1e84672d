"""The action gpustrap_environments, run by ansible-playbook: it sends only the lock files of what is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from gpustrap.content import PACKAGE, ansible_config


@pytest.fixture
def play(site, tmp_path):
    """``play(*environments, check=False)`` gives the task's result; the site is the lock's directory."""
    directory = tmp_path / "site"
    (directory / "environments").mkdir(parents=True)
    (directory / "gpustrap.lock.yml").write_text(yaml.safe_dump({"version": 1, "nodes": {"n1": {"roles": {}}}}))
    (directory / "hosts").write_text("n1 ansible_connection=local\n")

    def call(*environments, check=False, files=True):
        for one in environments if files else ():
            (directory / one["lock"]).write_text(site.texts[one["digest"]])
        arguments = {k: v for k, v in site.arguments(*environments).items() if k != "locks"}
        task = {"name": "Build", "gpustrap_environments": arguments}
        (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "n1", "gather_facts": False, "tasks": [task]}]))
        options = ["-i", directory / "hosts", "-i", directory / "gpustrap.lock.yml", *(["--check"] if check else [])]
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), *options, tmp_path / "play.yml"],
            env=os.environ | {"ANSIBLE_CONFIG": str(ansible_config()), "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            cwd="/",
        )
        return done.stdout + done.stderr

    call.directory = directory
    return call


def test_builds_then_changes_nothing(site, play):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"))
    first = play(torch)
    assert "changed=1" in first, first
    assert site.version() == "1.0"
    (play.directory / torch["lock"]).unlink()
    assert "changed=0" in play(torch, files=False), "a lock file was read though nothing is missing"


def test_check_mode_reads_the_lock_files_and_builds_nothing(site, play):
    torch = site.environment("torch", site.index.wheel("tiny", "1.0"))
    assert "changed=1" in play(torch, check=True)
    assert not site.prefix.exists()
    (play.directory / torch["lock"]).unlink()
    assert "environments/torch.txt cannot be read" in play(torch, check=True, files=False)


@pytest.fixture
def text_of(site, tmp_path):
    """``text_of(environment)`` gives what the action would send of its lock file."""
    path = PACKAGE / "ansible_plugins/action/gpustrap_environments.py"
    spec = importlib.util.spec_from_file_location("gpustrap_environments_action", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "environments").mkdir()
    return lambda wanted: module.lock_text(tmp_path, wanted, "n1")


def test_a_lock_file_that_somebody_edited_is_refused(site, text_of, tmp_path):
    torch = site.environment("torch", "tiny==1 --hash=sha256:0")
    file, text = tmp_path / torch["lock"], site.texts[torch["digest"]]
    file.write_text(text)
    assert text_of(torch) == text
    file.write_text(f"{text}# mine\n")
    with pytest.raises(AnsibleActionFail) as refused:
        text_of(torch)
    assert "was changed since the plan" in str(refused.value)
    assert "Next: git checkout environments/torch.txt, or gpustrap plan n1" in str(refused.value)


@pytest.mark.parametrize("lock", ["", "/etc/passwd", "../environments/torch.txt"])
def test_a_lock_file_outside_the_site_is_none(site, text_of, lock):
    with pytest.raises(AnsibleActionFail, match="environment torch has no lock file"):
        text_of(site.environment("torch", lock=lock))
