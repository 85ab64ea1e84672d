"""playbooks/site.yml wires every role, in site order, behind its guard and tag."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from gpustrap.content import ansible_config
from gpustrap.converge.session import PLANNING_TAG
from gpustrap.model.roles import ROLES

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "playbooks" / "site.yml"
ROLE = "ansible.builtin.import_role"


def test_wires_every_role_in_site_order():
    (play,) = yaml.safe_load(SITE.read_text(encoding="utf-8"))
    roles = [task for task in play["tasks"] if ROLE in task]
    assert [(t[ROLE], t["when"], t["tags"]) for t in roles] == [
        ({"name": r}, f"'{r}' in gpustrap_roles", [r]) for r in ROLES
    ]
    assert sorted(ROLES) == sorted(p.parent.parent.name for p in (ROOT / "roles").glob("*/meta/argument_specs.yml"))


def test_only_these_two_stages_reboot_right_before_and_after_the_driver():
    (play,) = yaml.safe_load(SITE.read_text(encoding="utf-8"))
    steps = [t[ROLE]["name"] if ROLE in t else next(k for k in t if k.startswith("gpustrap_")) for t in play["tasks"]]
    driver = steps.index("nvidia_driver")
    around = ["gpustrap_reboot", "gpustrap_mok", "nvidia_driver", "gpustrap_reboot"]
    assert steps[driver - 2 : driver + 2] == around
    reboots = [t["gpustrap_reboot"] for t in play["tasks"] if "gpustrap_reboot" in t]
    assert [step["stage"] for step in reboots] == ["kernel", "driver"]  # at most one each
    assert {step["allowed"] for step in reboots} == {"{{ gpustrap_reboot | default(false) }}"}
    allowed = ("systemctl reboot", "ansible.builtin.reboot", "shutdown -r")
    in_roles = [p for p in (ROOT / "roles").rglob("*.yml") if any(word in p.read_text() for word in allowed)]
    assert in_roles == []


def test_planning_is_for_nodes_without_a_lock_and_a_run_of_gpustrap_leaves_it_out():
    (play,) = yaml.safe_load(SITE.read_text(encoding="utf-8"))
    (task,) = play["pre_tasks"]
    assert task["when"] == "gpustrap_roles is not defined"
    assert set(task["tags"]) == {"always", PLANNING_TAG}  # with --tags docker, the node is planned, too
    assert task["ansible.builtin.include_tasks"]["apply"] == {"tags": ["always"]}


def test_a_node_with_a_lock_runs_nothing_more_and_without_one_only_plain_ansible_plans():
    done = ansible_playbook("-i", "node,", "-c", "local", "-e", "gpustrap_roles=[]", "-e", "ansible_become=false")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok=0 " in done.stdout
    assert "Plan the node" not in done.stdout
    ours = ansible_playbook("-i", "node,", "-c", "local", "--skip-tags", PLANNING_TAG)
    assert ours.returncode == 2
    assert "'gpustrap_roles' is undefined" in ours.stdout + ours.stderr
    assert "ok=0 " in ours.stdout


def test_one_node_never_stops_the_others_and_needrestart_is_quiet():
    (play,) = yaml.safe_load(SITE.read_text(encoding="utf-8"))
    assert play["any_errors_fatal"] is False
    assert play["gather_facts"] is False
    assert play["environment"] == {"NEEDRESTART_MODE": "l"}


def test_syntax():
    done = ansible_playbook("--syntax-check", "-i", "node,")
    assert done.returncode == 0, done.stderr


def ansible_playbook(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), *words, SITE],
        env=os.environ | {"ANSIBLE_CONFIG": str(ansible_config()), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
    )
