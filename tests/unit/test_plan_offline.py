"""plan --from-facts: recorded facts in, plans out; what is broken or hostile is left out and told."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpustrap.catalog.loader import load_catalog
from gpustrap.commands import plan_offline
from gpustrap.commands.facts_files import read_facts_files
from gpustrap.commands.plan import Planned
from gpustrap.commands.plan_offline import plan_from_facts, refuse_mixed
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts
from gpustrap.model.node import Endpoint, Node
from gpustrap.model.request import Request
from gpustrap.model.site import Site
from gpustrap.site.wrong import without_prefix

FACTS = yaml.safe_load((Path(__file__).parent.parent / "cases" / "plan" / "facts" / "debian13.yml").read_text())
NOWHERE = io.BytesIO()


def inspected(*names: str) -> dict[str, Any]:
    """What ``gpustrap inspect --format json`` prints."""
    nodes = [{"node": name, "facts": FACTS, "attention": []} for name in names]
    return {"nodes": nodes, "problems": [], "exit_code": 0}


def plan(*sources: Path | str, **more: Any) -> Planned:
    return plan_from_facts([str(s) for s in sources], **{"stdin": NOWHERE} | more)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, object], Path]:
    def make(name: str, content: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return make


Write = Callable[[str, object], Path]


@pytest.mark.parametrize(
    ("file", "content", "names"),
    [
        ("box.json", FACTS, ["box"]),
        ("box.yml", yaml.safe_dump(FACTS), ["box"]),
        ("box", FACTS, ["box"]),
        ("box", yaml.safe_dump(FACTS), ["box"]),
        ("nodes/n7/facts.json", FACTS, ["n7"]),
        ("all.json", inspected("n1", "n2"), ["n1", "n2"]),
        ("one.json", inspected("n1")["nodes"][0], ["n1"]),
        ("one.json", {"facts": FACTS}, ["one"]),
        ("list.json", inspected("n1", "n2")["nodes"], ["n1", "n2"]),
        ("windows.json", "\ufeff" + json.dumps(FACTS), ["windows"]),
    ],
)
def test_every_shape_that_inspect_gives_is_read(write: Write, file: str, content: object, names: list[str]) -> None:
    planned = plan(write(file, content))
    assert (list(planned.nodes), planned.problems, planned.lock) == (names, (), None)
    assert planned.exit_code is ExitCode.OK


def test_a_directory_is_its_files_and_what_a_site_keeps(write: Write, tmp_path: Path) -> None:
    for name in ("a.json", "b.yaml", "c.yml", "n1/facts.json", "deep/down/facts.json", "notes.txt"):
        write(f"facts/{name}", FACTS)
    assert list(plan(tmp_path / "facts").nodes) == ["a", "b", "c", "n1"]


def test_standard_input_is_a_file_without_a_name() -> None:
    assert list(plan("-", stdin=io.BytesIO(json.dumps(FACTS).encode())).nodes) == ["stdin"]
    assert list(plan("-", stdin=io.BytesIO(json.dumps(inspected("n1")).encode())).nodes) == ["n1"]


def test_arguments_are_files_or_the_nodes_that_are_wanted(write: Write) -> None:
    first, second = write("a.json", inspected("a1", "a2")), write("b.json", FACTS)
    assert list(plan(first, arguments=[str(second)]).nodes) == ["a1", "a2", "b"]
    assert list(plan(first, arguments=[str(second), "a2"]).nodes) == ["a2"]
    with pytest.raises(GpustrapError, match="did you mean a1") as caught:
        plan(first, arguments=["a11"])
    assert caught.value.exit_code is ExitCode.USAGE


BILLION_LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nos: *b\n"
NESTED = "[" * 100_000


@pytest.mark.parametrize(
    ("file", "content", "words", "way"),
    [
        ("x.json", "{", "it is no JSON", "correct it"),
        ("x.yml", "a: [1\nb", "it is no YAML", "correct it"),
        ("x.json", NESTED, "nested too deep", "file of facts"),
        ("x.json", b"\xff\xfe\x00", "no text in UTF-8", "JSON or YAML"),
        ("x.yml", BILLION_LAUGHS, "aliases", "without & and *"),
        ("x.yml", "", "it is empty", "gpustrap inspect"),
        ("x.yml", "# nothing\n", "holds no node's facts", "docs/plan.md"),
        ("x.json", "[]", "holds no node's facts", "docs/plan.md"),
        ("x.json", {"nodes": []}, "holds no node's facts", "docs/plan.md"),
        ("x.json", {"nodes": [{"node": "n1"}]}, "holds no node's facts", "docs/plan.md"),
        ("x.json", '"text"', "holds no node's facts", "docs/plan.md"),
        ("x.json", {"os": {"id": "debian"}}, "have mistakes", 'add os.architecture, like "x86_64"'),
        ("x.json", {"pci": []}, "have mistakes", 'add os, like {"id"'),
        ("x.json", {"facts": [1, 2]}, "have mistakes", "docs/plan.md"),
        ("x.json", {"node": "n\u001b[31m", "facts": FACTS}, "name in it cannot be used", "letters"),
        ("x.json", {"node": "", "facts": FACTS}, "name in it cannot be used", "letters"),
        (
            "x.json",
            json.dumps(FACTS | {"memory": {"total": 10}}).replace("10", "1e999"),
            "have mistakes",
            "write memory like",
        ),
        ("empty/", "", "no file in it", "gpustrap inspect --format json > "),
        ("gone.json", None, "there is no such file", "check the name"),
        ("*.json", None, "no file is named like this pattern", "the pattern"),
        ("n\0.json", None, "cannot be read", "check the name"),
    ],
)
def test_a_broken_or_hostile_file_is_told_and_stops_no_other(
    write: Write, tmp_path: Path, file: str, content: object, words: str, way: str
) -> None:
    good, bad = write("good/good.json", FACTS), tmp_path / file
    if file.endswith("/"):
        bad.mkdir()
    elif content is not None:
        write(file, content)
    planned = plan(bad, good)
    assert list(planned.nodes) == ["good"]
    (problem,) = planned.problems
    assert (problem.code, problem.subject, problem.exit_code) == ("facts-broken", str(bad), ExitCode.USAGE)
    assert words in problem.message
    assert way in problem.remedy
    assert "Errno" not in problem.evidence


def test_standard_input_without_anything() -> None:
    (problem,) = plan("-").problems
    assert (problem.subject, problem.message) == ("standard input", "nothing came in")
    assert "| gpustrap plan --from-facts -" in problem.remedy


def test_a_broken_node_leaves_the_others_of_its_file(write: Write) -> None:
    data = inspected("n1", "n2")
    data["nodes"][0]["facts"] = {"os": []}
    planned = plan(write("all.json", data))
    assert list(planned.nodes) == ["n2"]
    assert "node n1" in planned.problems[0].message


def test_a_file_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    monkeypatch.setattr("gpustrap.commands.facts_files.MAX_BYTES", 10)
    found, problems = read_facts_files([str(write("a.json", FACTS))], NOWHERE, load_catalog())
    assert (found, "larger than" in problems[0].message) == ({}, True)


def test_of_two_nodes_with_one_name_the_first_counts(write: Write) -> None:
    first, second = write("a.json", inspected("n1")), write("b.json", inspected("n1"))
    planned = plan(first, second)
    (problem,) = planned.problems
    assert (problem.code, problem.subject, list(planned.nodes)) == ("facts-twice", str(second), ["n1"])
    assert str(first) in problem.message


def test_the_inventory_has_the_requests_of_its_nodes(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Request(docker=False)
    monkeypatch.setattr(plan_offline, "load_nodes", lambda _site: (Node(Endpoint("n1", "n1"), (), mine),))
    source = write("all.json", inspected("n1", "n2"))
    with_site = plan(source, site=Site(Path("/s")))
    assert ["docker" in entry.roles for entry in with_site.nodes.values()] == [False, True]
    assert with_site.note == "Variables: the inventory's for 1, the defaults for 1"
    assert all("docker" in entry.roles for entry in plan(source).nodes.values())
    wished = plan(source, site=Site(Path("/s")), settings=["gpustrap_docker=true"])
    assert all("docker" in entry.roles for entry in wished.nodes.values())


def test_an_inventory_without_nodes_is_none_and_a_broken_one_ends_it(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(code: str) -> None:
        def load(_site: Site) -> Any:
            raise GpustrapError(Problem(code, "inventory", "is so", ExitCode.USAGE))

        monkeypatch.setattr(plan_offline, "load_nodes", load)

    source = write("a.json", FACTS)
    fails("no-hosts")
    assert list(plan(source, site=Site(Path("/s"))).nodes) == ["a"]
    fails("bad-value")
    with pytest.raises(GpustrapError, match="is so"):
        plan(source, site=Site(Path("/s")))


def test_versions_that_only_a_node_knows_stay_open(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    real = plan_offline.decide

    def decide(name: str, facts: Facts, request: Request, catalog: Any, *, offline: bool) -> Any:
        seen.append(offline)
        return real(name, facts, request, catalog, offline=offline)

    monkeypatch.setattr(plan_offline, "decide", decide)
    plan(write("a.json", FACTS))
    assert seen == [True]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("gpustrap_driver_branch=595", "driver_branch", "595"),
        ("gpustrap_cuda_version=12.10", "cuda_version", "12.10"),
        ("gpustrap_cuda_version=none", "cuda_version", "none"),
        ("gpustrap_docker=false", "docker", False),
        ("gpustrap_pcie_width=8", "pcie_width", 8),
        ("gpustrap_environments=[torch, vllm]", "environments", Request(environments=["torch", "vllm"]).environments),
        ("gpustrap_unattended_upgrades=off", "unattended_upgrades", "off"),
        ("gpustrap_docker_daemon={a: 1}", "docker_daemon", {"a": 1}),
        ("gpustrap_docker_version=5:29=x", "docker_version", "5:29=x"),
    ],
)
def test_a_setting_is_what_an_inventory_would_hold(
    write: Write, monkeypatch: pytest.MonkeyPatch, text: str, field: str, value: object
) -> None:
    seen: list[Request] = []
    real = plan_offline.decide
    monkeypatch.setattr(plan_offline, "decide", lambda n, f, r, c, **k: (seen.append(r), real(n, f, r, c, **k))[1])
    plan(write("a.json", FACTS), settings=[text])
    assert getattr(seen[0], field) == value
    assert seen[0].model_copy(update={field: Request.model_fields[field].get_default(call_default_factory=True)}) == (
        Request()
    )


@pytest.mark.parametrize(
    ("text", "code", "words", "way"),
    [
        (
            "gpustrap_drivre_branch=580",
            "unknown-variable",
            "did you mean gpustrap_driver_branch?",
            "--set gpustrap_driver_branch=580",
        ),
        (
            "driver_branch=580",
            "unknown-variable",
            "did you mean gpustrap_driver_branch?",
            "--set gpustrap_driver_branch=580",
        ),
        ("gpustrap_driver=open", "unknown-variable", "gpustrap_driver_flavour?", "--set gpustrap_driver_flavour=open"),
        (
            "gpustrap_torch=1",
            "unknown-variable",
            "did you mean gpustrap_environments?",
            "--set 'gpustrap_environments=[torch]'",
        ),
        ("gpustrap_secure_boot=false", "unknown-variable", "there is no variable", "docs/variables.md"),
        ("gpustrap_docker_repo=https://u:p@h", "unknown-variable", "docker_repository?", "docker_repository=…"),
        ("gpustrap_driver_branch", "bad-setting", "it has no value", "gpustrap_driver_branch=VALUE"),
        ("gpustrap_driver_branch=58", "bad-value", "must be auto or the three digits of a branch, e.g. 580", "correct"),
        ("gpustrap_driver_branch=", "bad-value", "has no value", "write --set gpustrap_driver_branch=580"),
        (
            "gpustrap_driver_branch=580.1.2",
            "bad-value",
            "which gpustrap_driver_version takes",
            "driver_version=580.1.2",
        ),
        (
            "gpustrap_driver_version=580",
            "bad-value",
            "must be a whole driver version, e.g. 580.178.04",
            "driver_branch=580",
        ),
        ("gpustrap_environments=torch", "bad-value", "must be a list", "write --set 'gpustrap_environments=[torch]'"),
        ("gpustrap_docker=perhaps", "bad-value", "must be true or false", "correct"),
        ("gpustrap_docker=", "bad-value", "has no value", "correct"),
        (
            "gpustrap_environments=[torch, {name: jax, python: 3.1}]",
            "bad-value",
            "gpustrap_environments[1].python must be in quotes",
            "correct",
        ),
        ("gpustrap_environments=[torch", "bad-value", "is no YAML", "correct"),
        ("gpustrap_pcie_width=3", "bad-value", "1, 2, 4, 8 or 16", "correct"),
    ],
)
def test_a_wrong_setting_ends_it(write: Write, text: str, code: str, words: str, way: str) -> None:
    with pytest.raises(GpustrapError, match=r".") as caught:
        plan(write("a.json", FACTS), settings=[text, "gpustrap_docker=true"])
    (problem,) = caught.value.problems
    assert (problem.code, problem.exit_code) == (code, ExitCode.USAGE)
    assert words in problem.message
    assert way in problem.remedy


def test_what_is_about_nodes_and_lock_does_not_mix_with_recorded_facts() -> None:
    refuse_mixed(True, [], ["gpustrap_docker=true"])
    refuse_mixed(False, ["--check", "--limit"], [])
    with pytest.raises(GpustrapError) as caught:
        refuse_mixed(True, ["--check", "--limit"], [])
    assert [p.subject for p in caught.value.problems] == ["--check", "--limit"]
    with pytest.raises(GpustrapError, match="inventory"):
        refuse_mixed(False, [], ["gpustrap_docker=true"])


def test_what_is_odd_about_a_node_s_variables_stands_beside_its_plan(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = without_prefix("driver_branch", "/s/inventory/hosts.yml:3", Site(Path("/s")))
    monkeypatch.setattr(plan_offline, "load_nodes", lambda _site: (Node(Endpoint("n1", "n1"), (), Request(), (odd,)),))
    planned = plan(write("all.json", inspected("n1", "n2")), site=Site(Path("/s")))
    assert [odd in p.findings for p in planned.plans.values()] == [True, False]
    assert odd.subject == "inventory/hosts.yml:3"
