"""Plain Ansible plans as gpustrap plan does: the action, the filter and the lock give roles the same, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.catalog.loader import load_catalog
from gpustrap.commands.inspect import packages_of_plan
from gpustrap.commands.plain_ansible import questions, with_lock_files
from gpustrap.content import ansible_config, content_root
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Lock, NodeLock
from gpustrap.model.node import Endpoint, Node
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.resolve.plan import plan_node
from gpustrap.site.lockfile import write_lock

CASES = Path(__file__).parent.parent / "cases" / "plan" / "facts"
ODD = "{{ lookup('pipe', 'touch stray') }}"  # data, whatever it looks like
GPU = {"address": "0000:01:00.0", "vendor": "10de", "pci_class": "0302", "device": "2204"}
REQUESTS: dict[str, dict[str, Any]] = {
    "debian12": {},
    "debian13": {"docker_daemon": {"odd": ODD}, "docker_users": ["ann"], "timezone": "Europe/Berlin"},
    "ubuntu2404": {"docker_origin": "upstream", "conda": False, "packages": ["htop"]},
    "gpus": {"conda_prefix": "/data/conda"},
    "bare": {"docker": False, "conda": False, "gpu": "none"},
    "amd": {},
}
REFUSED = {"amd": "amd-not-supported"}
WRONG = """\
all: {hosts: {wrong: {ansible_connection: local,
  gpustrap_dokcer: 1, gpustrap_docker_users: ann, docker_users: [x], gpustrap_timezone: "{{ zone }}"}}}
"""
MODULE = """\
import json, os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"packages": {"type": "list", "elements": "str"}})
assert "docker.io" in module.params["packages"]
module.exit_json(changed=False, facts=json.load(open(os.environ["FACTS"])))
"""
DUMP = """\
    - name: Write down what roles would see
      ansible.builtin.copy:
        content: "{{ dict(names | zip(query('vars', *names))) | to_json(sort_keys=true) }}"
        dest: "{{ playbook_dir }}/{{ out }}/{{ inventory_hostname }}.json"
        mode: "0600"
      vars:
        names: "{{ query('varnames', '^(gpustrap_roles$|(' ~ gpustrap_roles | join('|') ~ ')_)') }}"
"""
PLAY = f"""\
- name: Plan
  hosts: all
  gather_facts: false
  environment: {{FACTS: "{{{{ playbook_dir }}}}/facts/{{{{ inventory_hostname }}}}.json"}}
  tasks:
    - name: Ask the filter
      ansible.builtin.copy:
        content: "{{{{ facts | gpustrap_plan(request, name=inventory_hostname) | to_json(sort_keys=true) }}}}"
        dest: "{{{{ playbook_dir }}}}/filter/{{{{ inventory_hostname }}}}.json"
        mode: "0600"
      when: "out == 'action' and inventory_hostname != 'wrong'"
      vars:
        facts: "{{{{ lookup('file', playbook_dir ~ '/facts/' ~ inventory_hostname ~ '.json') | from_json }}}}"
        names: "{{{{ query('varnames', '^gpustrap_') | difference(['gpustrap_roles']) }}}}"
        request: "{{{{ dict(names | zip(query('vars', *names))) }}}}"
    - name: Plan a node that has no lock
      ansible.builtin.include_tasks: {content_root()}/playbooks/tasks/plan.yml
      when: gpustrap_roles is not defined
{DUMP}"""


class _Unsafe(str):
    """Text that Ansible leaves alone."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes it with Ansible's tag."""


_Dumper.add_representer(_Unsafe, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text)))


def facts_of(name: str) -> dict[str, Any]:
    """Recorded facts; the node's apt knows every package."""
    debian = name in {"gpus", "bare", "amd"}
    facts: dict[str, Any] = yaml.safe_load((CASES / f"{'debian13' if debian else name}.yml").read_text())
    every = dict.fromkeys([*load_catalog().packages(), "htop"], "580.95.05-1")
    facts["package_manager"]["candidates"] = every | facts["package_manager"]["candidates"]
    facts["pci"] = [GPU] if name == "gpus" else [GPU | {"vendor": "1002"}] if name == "amd" else []
    return facts


def ansible(root: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ANSIBLE_CONFIG": str(ansible_config()), "ANSIBLE_NOCOLOR": "1"} | environ
    program = str(Path(sys.executable).parent / "ansible-playbook")
    return subprocess.run([program, *words], cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A site whose nodes were planned in all three ways, and what Ansible said without the lock."""
    site = Site(tmp_path_factory.mktemp("site"))
    hosts, entries = {}, {}
    for directory in ("library", "facts", "wrong", "filter", "action", "lock"):
        (site.root / directory).mkdir()
    (site.root / "library" / "gpustrap_facts.py").write_text(MODULE)
    (site.root / "play.yml").write_text(PLAY)
    for name, request in REQUESTS.items():
        facts = facts_of(name)
        (site.root / "facts" / f"{name}.json").write_text(json.dumps(facts))
        values = yaml.safe_load(yaml.safe_dump(request))
        if "docker_daemon" in values:
            values["docker_daemon"]["odd"] = _Unsafe(ODD)
        hosts[name] = {"ansible_connection": "local"} | {f"gpustrap_{k}": v for k, v in values.items()}
        plan = plan_node(name, Facts.model_validate(facts), Request.model_validate(request), load_catalog())
        if name in REFUSED:
            assert [p.code for p in plan.problems] == [REFUSED[name]]
        else:
            assert isinstance(plan.lock, NodeLock), plan.problems
            whole = with_lock_files(plan).lock  # of environments, plain Ansible has no lock files
            assert whole
            entries[name] = whole
    hosts["bare"]["driver_branch"] = "580"  # without the prefix: nobody reads it
    (site.root / "wrong" / "hosts.yml").write_text(WRONG)
    (site.root / "hosts.yml").write_text(yaml.dump({"all": {"hosts": hosts}}, Dumper=_Dumper))
    write_lock(site, Lock(tool="t", catalog="c", nodes=entries))
    done = ansible(site.root, "-i", "hosts.yml", "-i", "wrong/hosts.yml", "play.yml", "-e", "out=action")
    locked = ansible(site.root, "-i", "hosts.yml", "-i", site.lock.name, "play.yml", "-e", "out=lock", "-l", "!amd")
    assert locked.returncode == 0, locked.stdout + locked.stderr
    return site.root, done.stdout + done.stderr


@pytest.mark.parametrize("name", [n for n in REQUESTS if n not in REFUSED])
def test_roles_see_the_same_whoever_planned(made: tuple[Path, str], name: str) -> None:
    root, _said = made
    lock = (root / "lock" / f"{name}.json").read_bytes()
    assert (root / "action" / f"{name}.json").read_bytes() == lock
    answer = json.loads((root / "filter" / f"{name}.json").read_bytes())
    flat = {variable: value for of_role in answer["roles"].values() for variable, value in of_role.items()}
    seen = json.loads(lock)
    assert set(seen.pop("gpustrap_roles")) == set(answer["roles"])
    assert json.dumps(flat, sort_keys=True) == json.dumps(seen, sort_keys=True)


def test_a_node_is_asked_what_gpustrap_plan_asks() -> None:
    request = Request(packages=("htop", "docker.io"))
    asked = packages_of_plan(load_catalog())(Node(Endpoint("n1", "n1"), (), request))
    assert questions(request) == asked


def test_pending_roles_choices_and_findings_are_those_of_the_lock(made: tuple[Path, str]) -> None:
    root, _said = made
    answer = json.loads((root / "filter" / "gpus.json").read_bytes())
    request = Request(conda_prefix="/data/conda")
    whole = plan_node("gpus", Facts.model_validate(facts_of("gpus")), request, load_catalog())
    plan = with_lock_files(whole)
    assert isinstance(plan.lock, NodeLock)
    assert plan.findings != whole.findings, "environments have no lock files here"
    lock = plan.lock.model_dump(mode="json")
    assert (answer["pending"], answer["choices"]) == (lock["pending"], lock["choices"])
    assert answer["findings"] == [f.model_dump(mode="json") for f in plan.findings]


def test_data_that_looks_like_a_template_stays_data(made: tuple[Path, str]) -> None:
    root, _said = made
    assert json.loads((root / "action" / "debian13.json").read_bytes())["docker_daemon"]["odd"] == ODD
    assert not (root / "stray").exists()


def test_a_refusal_fails_its_own_node_only_in_the_same_words(made: tuple[Path, str]) -> None:
    root, said = made
    plan = plan_node("amd", Facts.model_validate(facts_of("amd")), Request(), load_catalog())
    problem = plan.problems[0]
    for words in (problem.message, problem.remedy, problem.code):
        assert words in said
    assert "Traceback" not in said
    assert not (root / "action" / "amd.json").exists()
    assert [p["message"] for p in json.loads((root / "filter" / "amd.json").read_bytes())["problems"]] == [
        p.message for p in plan.problems
    ]


def test_everything_wrong_is_said_at_once_in_the_words_of_the_inventory(made: tuple[Path, str]) -> None:
    _root, said = made
    for words in (
        "there is no variable gpustrap_dokcer; did you mean gpustrap_docker?",
        "wrong/hosts.yml:2: gpustrap_docker_users must be a list; it is 'ann'",
        "docker_users belongs to a role: it comes from the plan, not from the inventory",
        "gpustrap_timezone uses a variable that is not set",
        "Next: write gpustrap_docker_users: [ann] in wrong/hosts.yml",
    ):
        assert words in said
    assert "Traceback" not in said


def test_a_variable_without_the_prefix_is_told(made: tuple[Path, str]) -> None:
    _root, said = made
    flat = " ".join(said.split())  # Ansible breaks the lines of its warnings
    assert "gpustrap does not read driver_branch; its own variable is gpustrap_driver_branch" in flat


def test_without_gpustrap_ansible_says_what_to_install(made: tuple[Path, str], tmp_path: Path) -> None:
    (tmp_path / "gpustrap.py").write_text("raise ImportError('No module named gpustrap')")
    words = ("-i", "hosts.yml", "play.yml", "-e", "out=none", "-l", "bare", "-vvv")
    done = ansible(made[0], *words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    said = done.stdout + done.stderr
    assert f"Next: {Path(sys.executable).parent}/python" in said  # python or python3: as the scripts there begin
    assert f" -m pip install {content_root()}" in said
    assert "Traceback" not in done.stdout + done.stderr
