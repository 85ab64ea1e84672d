"""Roles on the RHEL family, for which there is no lab: what is planned runs in check mode and says what follows."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpustrap.catalog.loader import load_catalog
from gpustrap.content import ansible_config
from gpustrap.model.facts import Facts
from gpustrap.model.request import Request
from gpustrap.resolve.plan import plan_node

FACTS = Facts.model_validate(
    {
        "os": {"id": "rocky", "version_id": "9", "architecture": "x86_64"},
        "kernel": {"running": "5.14.0-611.el9.x86_64", "headers": ["5.14.0-611.el9.x86_64"]},
        "package_manager": {"kind": "dnf"},
        "pci": [
            {"address": "0000:18:00.0", "vendor": "10de", "device": "2330", "pci_class": "0302"},
            {"address": "0000:07:00.0", "vendor": "10de", "device": "22a3", "pci_class": "0680"},
        ],
    }
)


@pytest.fixture(scope="module")
def planned() -> dict[str, dict[str, Any]]:
    """Role -> its variables, as planned for Rocky Linux 9 on HGX H100."""
    plan = plan_node("n1", FACTS, Request(), load_catalog(), offline=True)
    assert plan.lock, plan.problems
    return {**plan.lock.roles, **plan.lock.pending}


@pytest.fixture
def check(tmp_path):
    """Run a role in check mode on this machine, with dnf's directory elsewhere."""
    body = b"\x04" + bytes(4) + b"\x16key"
    packet = b"\xc6" + bytes([len(body)]) + body
    fingerprint = hashlib.sha1(b"\x99\x00" + bytes([len(body)]) + body).hexdigest()
    head, tail = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n", b"\n-----END PGP PUBLIC KEY BLOCK-----\n"
    (tmp_path / "gpgkey").write_bytes(head + base64.b64encode(packet) + tail)
    key = {"url": (tmp_path / "gpgkey").as_uri(), "fingerprints": [fingerprint], "sha256": ""}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\n")  # this machine may have none that answers
    (tmp_path / "bin/systemctl").chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    defaults = {"ansible.builtin.yum_repository": {"reposdir": str(tmp_path)}}

    def run(role: str, variables: dict[str, Any]) -> str:
        given = {name: key if name == f"{role}_key" else value for name, value in variables.items()}
        play = {"hosts": "all", "gather_facts": False, "module_defaults": defaults, "vars": given, "roles": [role]}
        (tmp_path / "play.yml").write_text(json.dumps([play]))
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                *("--check", "--inventory", "node,", "--connection", "local"),
                tmp_path / "play.yml",
            ],
            env=os.environ | {"ANSIBLE_CONFIG": str(ansible_config()), "ANSIBLE_NOCOLOR": "1", "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_container_toolkit(planned, check):
    role = "nvidia_container_toolkit"
    said = check(role, planned[role])
    assert "would follow: install libnvidia-container-tools-1.20.0-1 libnvidia-container1-1.20.0-1" in said


def test_fabric_manager(planned, check):
    role = "nvidia_fabric_manager"
    assert planned[role][f"{role}_pin"] == "versionlock"
    version = planned[role][f"{role}_driver"]
    said = check(role, planned[role])
    assert "would follow: install" in said
    assert f"nvidia-fabricmanager-{version}" in said


def test_cuda_toolkit(planned, check):
    role = "cuda_toolkit"
    said = check(role, planned[role])
    first = planned[role][f"{role}_packages"][0]
    assert f"would follow: install {first['name']}-{first['version']} lib" in said
    assert "gpustrap_cuda_packages" not in said, "apt's part is left out"


def test_nvidia_driver(planned, check):
    role = "nvidia_driver"
    given = planned[role]
    assert (given[f"{role}_pin"], given[f"{role}_stream"]) == (
        "versionlock",
        f"nvidia-driver:{given[f'{role}_branch']}-open",
    )
    said = check(role, given)
    assert "would follow: install python3-dnf-plugin-versionlock kernel-devel-matched kernel-headers" in said
    assert f"kmod-nvidia-open-dkms-{given[f'{role}_package_version']}" in said
