"""SSH hardening against what an administrator has already set, asked of a real sshd."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpustrap.content import content_root

TEMPLATE = content_root() / "roles" / "ubuntu_server" / "templates" / "sshd.conf.j2"
STRICT = {"permitrootlogin": "no", "passwordauthentication": "no", "kbdinteractiveauthentication": "no"}


@pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="no sshd on this machine")
@pytest.mark.parametrize("set_by_admin", [STRICT, {"permitrootlogin": "forced-commands-only"}, {}])
def test_hardening_never_loosens_what_the_administrator_set(tmp_path: Path, set_by_admin: dict[str, str]) -> None:
    """sshd takes the first value it reads, and ours is read first."""
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    key, config = tmp_path / "key", tmp_path / "sshd_config"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    lines = [f"Include {TEMPLATE}", f"HostKey {key}", *(f"{name} {value}" for name, value in set_by_admin.items())]
    config.write_text("\n".join(lines) + "\n")
    said = subprocess.run(["/usr/sbin/sshd", "-T", "-f", str(config)], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    found = dict(line.split(" ", 1) for line in said.stdout.splitlines() if " " in line)
    passwords = {"passwordauthentication": "no", "kbdinteractiveauthentication": "no"}
    wanted = set_by_admin | passwords
    assert {name: found[name] for name in wanted} == wanted
