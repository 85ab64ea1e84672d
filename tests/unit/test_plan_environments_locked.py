"""plan and the lock files of environments: what is made, kept, shared, warned of and refused. No index is asked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.commands import plan as command
from gpustrap.environments.closure import Closure, ClosureError, Compiled
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.node import Endpoint, Node, Secrets
from gpustrap.model.progress import Step
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.resolve.environments.left_out import items
from gpustrap.site.lockfile import read_lock

FACTS = Path(__file__).parent.parent / "cases" / "plan" / "facts"
GPU = {"address": "0000:01:00.0", "vendor": "10de", "device": "2204", "pci_class": "0300"}
ASKED = {"environments": ["torch"]}
GONE = ClosureError("environment-not-locked", "the index cannot be reached", "curl it", "dns error", unreachable=True)


class World:
    """Two nodes with a GPU each, and an index whose newest numpy is ``version``."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)
        data = yaml.safe_load((FACTS / "debian13.yml").read_text())
        data["package_manager"]["candidates"] |= {"docker.io": "26.1.5", "docker-cli": "26.1.5"}
        changes = {"pci": [GPU], "secure_boot": {"enabled": False, "source": "efivar"}}
        self.facts = Facts.model_validate(data | changes)
        self.requests: dict[str, dict[str, Any]] = {"n1": {}, "n2": {}}
        self.version, self.failure = "2.1", None
        self.asked: list[tuple[Closure, str]] = []
        self.said: list[str] = []

    def compile(self, closure: Closure, preferred: str) -> Compiled:
        self.asked.append((closure, preferred))
        if self.failure:
            raise self.failure
        return Compiled(f"numpy=={self.version}\n")

    def nodes(self, _site: Site, patterns: list[str] | None = None, _limit: str | None = None) -> tuple[Node, ...]:
        return tuple(
            Node(Endpoint(n, n), (), Request.model_validate(self.requests[n])) for n in patterns or self.requests
        )

    def plan(self, *patterns: str, **options: Any) -> command.Planned:
        self.asked.clear()
        return command.plan(
            self.site,
            patterns=list(patterns),
            secrets=Secrets(),
            compiler=self.compile,
            progress=self.told,
            **options,
        )

    def told(self, step: Step) -> None:
        self.said.append(step.text)

    def item(self, node: str = "n1", name: str = "torch") -> dict[str, Any]:
        lock = read_lock(self.site)
        assert lock is not None
        return next(item for item in items(lock.nodes[node]) if item["name"] == name)

    @property
    def files(self) -> list[Path]:
        return sorted((self.site.root / "environments").glob("*"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(command, "load_nodes", made.nodes)
    monkeypatch.setattr(command, "read_facts", lambda _s, nodes, **_m: {n.name: made.facts for n in nodes})
    return made


def test_nodes_of_one_kind_share_a_file_that_is_made_once(world):
    planned = world.plan()
    assert planned.problems == ()
    [file] = world.files
    assert len(world.asked) == 1
    assert world.item("n1") == world.item("n2")
    assert world.item()["lock"] == f"environments/{file.name}"
    assert world.item()["digest"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert file.stat().st_mode & 0o777 == 0o644
    assert f"+ environments/{file.name} (n1, n2): 1 package locked" in planned.changes
    assert "finding the packages of environment torch" in world.said
    assert world.asked[0][0].glibc == "2.41"


def test_a_file_that_was_made_from_the_same_is_kept_without_any_index(world):
    world.plan()
    world.failure, world.version = GONE, "9"
    planned = world.plan()
    assert (world.asked, planned.changes, planned.problems, planned.written) == ([], (), (), False)


def test_upgrade_takes_the_newest_and_shows_what_moved(world):
    world.plan()
    world.version = "2.2"
    assert world.plan().changes == ()
    planned = world.plan(upgrade=["environments"])
    assert world.asked[0][1] == ""
    [line] = [line for line in planned.changes if "numpy" in line]
    assert line == f"~ {world.item()['lock']} (n1, n2): numpy 2.1 -> 2.2"


def test_upgrade_of_one_node_moves_those_that_share_its_file(world):
    """All nodes of a kind have the same packages; the other one must not be left with a digest of no file."""
    world.plan()
    world.version = "2.2"
    world.plan("n1", upgrade=["environments"])
    assert world.item("n2")["digest"] == hashlib.sha256(world.files[0].read_bytes()).hexdigest()
    assert world.item("n1")["digest"] == world.item("n2")["digest"]


def test_another_wish_keeps_the_versions_of_before_and_names_the_file_nobody_uses(world):
    world.plan()
    old = world.item()["lock"]
    wish = {"environments": [{"name": "torch", "framework": "pytorch", "extras": ["accelerate"]}]}
    world.requests = {"n1": wish, "n2": wish}
    planned = world.plan()
    assert "numpy==2.1" in world.asked[0][1]
    assert planned.note == f"No node uses these any more: git rm {old}"
    assert (world.site.root / old).exists()
    assert world.plan().note == planned.note


def test_check_writes_nothing(world):
    planned = world.plan(check=True)
    assert [p.code for p in planned.problems] == ["lock-stale"]
    assert world.files == []
    world.plan()
    assert world.plan(check=True).problems == ()
    assert world.asked == []


def test_explain_looks_nothing_up(world):
    world.plan(write=False)
    assert (world.asked, world.files) == ([], [])


def test_an_index_that_is_gone_leaves_the_default_environment_out(world):
    world.failure = GONE
    planned = world.plan()
    assert planned.exit_code is ExitCode.OK
    assert "ml_environments" not in planned.nodes["n1"].roles
    assert "docker" in planned.nodes["n1"].roles
    [finding] = [f for f in planned.plans["n1"].findings if f.code == "environment-not-locked"]
    assert finding.severity == "warning"
    assert finding.message == "the index cannot be reached, so it is left out: nobody asked for it by name"
    world.failure = None
    assert "ml_environments" in world.plan().nodes["n1"].roles


def test_an_index_that_is_gone_refuses_an_environment_that_was_asked_for(world):
    world.requests["n1"] = {"environments": ["torch", "jax"]}
    world.plan("n2")
    before = world.site.lock.read_text()
    world.failure = GONE
    planned = world.plan("n1")
    assert planned.exit_code is ExitCode.REFUSED
    assert {(p.code, p.subject) for p in planned.problems} == {("environment-not-locked", "node n1")}
    assert planned.problems[0].message.startswith("environment ")
    assert world.site.lock.read_text() == before


def test_what_was_found_of_others_is_kept_for_the_second_try(world):
    world.requests = {"n1": {"environments": ["torch", "jax"]}}
    world.failure = None
    compile_all = world.compile

    def only_torch(closure: Closure, preferred: str) -> Compiled:
        if closure.name == "jax":
            raise ClosureError("environment-conflict", "does not go together", "change it")
        return compile_all(closure, preferred)

    world.compile = only_torch
    assert [p.code for p in world.plan().problems] == ["environment-conflict"]
    world.compile = compile_all
    assert world.plan().problems == ()
    assert [closure.name for closure, _ in world.asked] == ["jax"]


def test_the_default_environment_stays_as_it_was_where_its_new_lock_cannot_be_made(world):
    world.plan()
    before = world.item()
    world.failure = GONE
    planned = world.plan(upgrade=["environments"])
    assert planned.problems == ()
    assert world.item() == before
    assert "it stays as it was" in planned.plans["n1"].findings[-1].message


def test_one_index_that_is_gone_is_tried_once(world):
    world.requests = {"n1": {"environments": [{"name": n, "framework": "jax", "extras": [n]} for n in ("a", "b", "c")]}}
    world.failure = GONE
    assert len(world.plan().problems) == 3
    assert len(world.asked) == 1


def test_a_file_changed_by_hand_is_found_and_made_anew(world):
    world.plan()
    [file] = world.files
    file.write_text(file.read_text().replace("numpy==2.1", "numpy==2.0"))
    planned = world.plan()
    assert "environment-file-changed" in {f.code for f in planned.plans["n1"].findings}
    assert "numpy==2.0" in world.asked[0][1]
    assert world.item()["digest"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert "environment-file-changed" not in {f.code for f in world.plan().plans["n1"].findings}


def test_a_file_changed_by_hand_without_an_index_names_the_way_back(world):
    world.requests = {"n1": ASKED | {"conda": False}}
    world.requests["n1"]["environments"] = [{"name": "torch", "framework": "pytorch", "extras": ["x"]}]
    world.plan()
    [file] = world.files
    file.write_text(file.read_text() + "evil==1\n")
    world.failure = GONE
    [problem] = world.plan().problems
    assert problem.remedy == f"git checkout environments/{file.name}"
    assert "was changed by hand" in problem.message


def test_a_file_that_is_gone_is_made_anew(world):
    world.plan()
    digest = world.item()["digest"]
    world.files[0].unlink()
    assert world.plan().problems == ()
    assert world.item()["digest"] == digest


def test_a_requirements_file_that_is_not_there(world):
    wish = {"name": "own", "framework": "python", "requirements": "own.txt"}
    world.requests = {"n1": {"environments": [wish]}}
    [problem] = world.plan().problems
    assert (problem.code, problem.exit_code) == ("environment-requirements", ExitCode.REFUSED)
    (world.site.root / "own.txt").write_text("numpy\n")
    assert world.plan().problems == ()
    assert world.asked[0][0].requirements == ("numpy",)
    (world.site.root / "own.txt").write_text("numpy\nscipy\n")
    world.plan()
    assert world.asked[0][0].requirements == ("numpy", "scipy")


def test_a_yanked_version_is_warned_of(world, monkeypatch):
    monkeypatch.setattr(world, "compile", lambda *_: Compiled("numpy==2\n", ("numpy==2 is yanked",)))
    [finding] = [f for f in world.plan().plans["n1"].findings if f.code == "environment-yanked"]
    assert finding.evidence == "numpy==2 is yanked"


def test_two_frameworks_by_way_of_a_dependency(world, monkeypatch):
    world.requests = {"n1": {"environments": [{"name": "j", "framework": "jax", "extras": ["torchvision"]}]}}
    monkeypatch.setattr(world, "compile", lambda *_: Compiled("jax==0.12\ntorch==2.15\ntorchvision==0.29\n"))
    [problem] = world.plan().problems
    assert problem.code == "frameworks-in-one-environment"
    assert "torch 2.15" in problem.evidence


def test_the_lock_names_the_index_that_uv_took_by_itself(world, monkeypatch):
    body = "torch==2.0\n    # from https://torch.example/whl/cu130\nnumpy==2\n    # from https://index.example/simple\n"
    monkeypatch.setattr(world, "compile", lambda *_: Compiled(body))
    world.requests = {"n1": {"environments": [{"name": "own", "framework": "python", "extras": ["numpy"]}]}}
    world.plan()
    role = read_lock(world.site).nodes["n1"].roles["ml_environments"]
    assert role["ml_environments_index"] == "https://torch.example/whl/cu130"  # none of it is a framework's here
    again = world.plan()
    assert again.changes == ()


def test_an_index_that_is_asked_for_stays(world, monkeypatch):
    monkeypatch.setattr(world, "compile", lambda *_: Compiled("numpy==2\n    # from https://other.example/simple\n"))
    wish = {"name": "own", "framework": "python", "extras": ["numpy"]}
    world.requests = {"n1": {"environments": [wish], "python_index": "https://mirror.example/simple"}}
    world.plan()
    role = read_lock(world.site).nodes["n1"].roles["ml_environments"]
    assert role["ml_environments_index"] == "https://mirror.example/simple"
