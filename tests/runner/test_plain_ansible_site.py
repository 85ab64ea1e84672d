"""playbooks/site.yml on this machine, by plain Ansible: planned on the way or beforehand, its roles see the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpustrap import __version__
from gpustrap.ansible_plugins.module_utils.gpustrap_node.main import main as ask
from gpustrap.catalog.loader import load_catalog
from gpustrap.commands.plan import decide
from gpustrap.content import ansible_config, content_root
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.site.lockfile import write_lock

WISH = {"gpu": "none", "docker": False, "packages": ["gpg"], "conda_prefix": "/data/conda"}
DUMP = """\
    - name: Write down what the roles saw
      ansible.builtin.copy:
        content: "{{ dict(names | zip(query('vars', *names))) | to_json(sort_keys=true) }}"
        dest: "{{ playbook_dir }}/{{ out }}"
        mode: "0600"
      vars:
        names: "{{ query('varnames', '^(gpustrap_roles$|(' ~ gpustrap_roles | join('|') ~ ')_)') }}"
      tags: [always]
"""
PLAYBOOK = f"""\
- name: The site
  ansible.builtin.import_playbook: {content_root()}/playbooks/site.yml
- name: Look
  hosts: all
  gather_facts: false
  tasks:
{DUMP}"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.inventory.mkdir()
    node = {"ansible_connection": "local", "ansible_become": False} | {f"gpustrap_{k}": v for k, v in WISH.items()}
    (made.inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"n1": node}}}))
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    return made


def run(site: Site, out: str, *inventories: str) -> str:
    """Run the playbook with no task of a role but the check of its variables, and give what it said."""
    program = Path(sys.executable).with_name("ansible-playbook")
    words = [w for i in ("inventory", *inventories) for w in ("-i", i)]
    done = subprocess.run(
        [program, *words, "play.yml", "--tags", "none", "-e", f"out={out}"],
        cwd=site.root,
        env=os.environ | {"ANSIBLE_CONFIG": str(ansible_config()), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_a_lock_the_roles_see_what_the_lock_would_have_given_them(site: Site) -> None:
    said = run(site, "planned.json")
    assert "TASK [Plan the node]" in said
    request = Request.model_validate(WISH)
    packages = sorted({*load_catalog().packages(), *request.packages})
    answer = ask({"verb": "facts", "args": {"packages": packages}})
    plan = decide("n1", Facts.model_validate(answer["data"]), request, load_catalog())
    assert isinstance(plan.lock, NodeLock), plan.problems
    write_lock(site, Lock(tool=f"gpustrap {__version__}", catalog=load_catalog().digest, nodes={"n1": plan.lock}))
    said = run(site, "locked.json", site.lock.name)
    assert "TASK [Plan the node]" not in said
    assert "conda : Validating arguments" in said
    assert (site.root / "planned.json").read_bytes() == (site.root / "locked.json").read_bytes()
