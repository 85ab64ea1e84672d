"""playbooks/site.yml wires every role, in site order, behind its guard and tag."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from gpustrap.content import ansible_config
from gpustrap.model.roles import ROLES

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "playbooks" / "site.yml"


def test_wires_every_role_in_site_order():
    (play,) = yaml.safe_load(SITE.read_text(encoding="utf-8"))
    assert play["roles"] == [{"role": r, "when": f"'{r}' in gpustrap_roles", "tags": [r]} for r in ROLES]
    assert sorted(ROLES) == sorted(p.parent.parent.name for p in (ROOT / "roles").glob("*/meta/argument_specs.yml"))


def test_one_node_never_stops_the_others_and_needrestart_is_quiet():
    (play,) = yaml.safe_load(SITE.read_text(encoding="utf-8"))
    assert play["any_errors_fatal"] is False
    assert play["gather_facts"] is False
    assert play["environment"] == {"NEEDRESTART_MODE": "l"}


def test_syntax():
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "--syntax-check", "-i", "node,", SITE],
        env=os.environ | {"ANSIBLE_CONFIG": str(ansible_config())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
