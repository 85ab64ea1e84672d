"""What verify leaves on the controller, and reads back."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpustrap.catalog.loader import load_catalog
from gpustrap.cli.app import app
from gpustrap.commands import certificates
from gpustrap.commands.verify import Verified
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.certificate import Certificate, Fleet
from gpustrap.model.check import Check, NodeChecks, Verdict
from gpustrap.model.facts import Facts
from gpustrap.model.lock import Choice, Lock, NodeLock
from gpustrap.model.node import Secrets
from gpustrap.model.site import Site
from gpustrap.report.certificate_view import view_fleet
from gpustrap.report.html import render_certificates
from gpustrap.site.certificates import read_certificates
from gpustrap.verify.certify import hardware

FLEET = {"fleet.json", "fleet.md", "fleet.html", "junit.xml", "gpustrap.prom"}
GPU = {
    "address": "0000:01:00.0",
    "vendor": "10de",
    "device": "2204",
    "pci_class": "0300",
    "uuid": "GPU-01234567-89ab-cdef-0123-456789abcdef",
    "numa_node": 0,
}
FACTS = Facts.model_validate(
    {
        "os": {"id": "debian", "version_id": "13", "pretty_name": "Debian GNU/Linux 13", "architecture": "x86_64"},
        "kernel": {"running": "6.12.0"},
        "pci": [
            GPU,
            {"address": "0000:00:02.0", "vendor": "1a03", "device": "2000", "pci_class": "0300"},
            {"address": "0000:02:00.0", "vendor": "10de", "device": "22a3", "pci_class": "0680"},
            {"address": "0000:03:00.0", "vendor": "10de", "device": "fffe", "pci_class": "0302"},
        ],
        "nvidia": {"module": "580.95.05", "flavour": "open"},
    }
)


def checks(verdict: str, *, simulated: bool = False) -> NodeChecks:
    check = Check(id="a", title="A", verdict=Verdict(verdict), reason="r", simulated=simulated)
    return NodeChecks(node="n1", checks=(check,))


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_machine_is_told_by_the_catalog() -> None:
    found = hardware(FACTS, load_catalog())
    assert [(gpu.name, gpu.uuid, gpu.pci_id) for gpu in found.gpus] == [
        ("GeForce RTX 3090", GPU["uuid"], "10de:2204"),
        ("unlisted GPU 10de:fffe", "", "10de:fffe"),
    ]
    assert found.switches == ("0000:02:00.0",)
    assert (found.os, found.driver, found.flavour) == ("Debian GNU/Linux 13, x86_64", "580.95.05", "open")
    assert found.gpus[0].nvlink.startswith("NVLink3 bridge")


def test_a_node_that_claims_too_much_costs_the_fleet_nothing(make_certificate: Any, make_fleet: Any) -> None:
    claimed = {"vendor": "10de", "device": "2204", "pci_class": "0300", "bridges": [f"b{n}" for n in range(5000)]}
    devices = [{**claimed, "address": f"a{n:05}"} for n in range(300)]
    facts = Facts.model_validate({"os": {"id": "x", "architecture": "x"}, "kernel": {"running": "6"}, "pci": devices})
    machine = hardware(facts, load_catalog())
    assert len(machine.gpus) == 256
    page = render_certificates(view_fleet(make_fleet(make_certificate(hardware=machine))))
    assert "256 x GeForce RTX 3090" in page


@pytest.fixture
def certify(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Fleet]:
    """certify_nodes, with what verify is to find."""
    choices = [Choice(item="driver", value="580.95.05", reason="r", source="s")]
    choices += [Choice(item="later", value="1", reason="r", source="s", pending=True)]
    entry = NodeLock(request_digest="a", system_digest="b", os="debian 13", choices=tuple(choices), roles={})

    def run(**results: Any) -> Fleet:
        monkeypatch.setattr(certificates, "read_lock", lambda _site: Lock(tool="0", catalog="c", nodes={"n1": entry}))
        monkeypatch.setattr(certificates, "verify", lambda *_, **asked: asked["facts"] and results)
        return certificates.certify_nodes(Site(tmp_path), (), secrets=Secrets())

    return run


def test_each_node_has_its_certificate_or_why_it_has_none(certify: Callable[..., Fleet]) -> None:
    error = GpustrapError(Problem("unreachable", "node n2", "does not answer", ExitCode.UNREACHABLE))
    fleet = certify(n1=Verified(checks("warn"), FACTS), n2=error)
    assert [(n.node, n.verdict.value, n.simulated) for n in fleet.nodes] == [("n1", "warn", False)]
    assert [p.subject for p in fleet.problems] == ["node n2"]
    assert fleet.exit_code is ExitCode.UNREACHABLE
    assert [choice.item for choice in fleet.nodes[0].stack] == ["driver"]  # not what is only planned
    assert fleet.nodes[0].run == fleet.run
    assert fleet.nodes[0].started.endswith("+00:00")


@pytest.mark.parametrize(
    ("verdict", "code"), [("pass", ExitCode.OK), ("warn", ExitCode.WARNINGS), ("fail", ExitCode.VERIFY_FAILED)]
)
def test_the_exit_code_is_the_verdict(certify: Callable[..., Fleet], verdict: str, code: ExitCode) -> None:
    assert certify(n1=Verified(checks(verdict))).exit_code is code


@pytest.mark.parametrize("what", ["check", "gpus", "nothing"])
def test_what_rests_on_a_stand_in_says_so(certify: Callable[..., Fleet], what: str) -> None:
    nvidia = FACTS.nvidia.model_copy(update={"simulated": what == "gpus"})
    facts = FACTS.model_copy(update={"nvidia": nvidia})
    fleet = certify(n1=Verified(checks("pass", simulated=what == "check"), facts))
    assert fleet.simulated is (what != "nothing")


def test_a_node_that_does_not_say_what_it_is_has_a_certificate_all_the_same(certify: Callable[..., Fleet]) -> None:
    assert certify(n1=Verified(checks("pass"))).nodes[0].hardware is None


@pytest.mark.parametrize(("mode", "of_directory"), [(certificates.OURS, 0o700), (certificates.OTHERS, 0o755)])
def test_every_format_is_written(tmp_path: Path, whole: Fleet, mode: int, of_directory: int) -> None:
    place = tmp_path / "out"
    certificates.write(whole, place, mode=mode)
    nodes = {f"nodes/{n.node}.{ending}" for n in whole.nodes for ending in ("json", "md", "html")}
    assert files(place) == FLEET | nodes
    assert {stat.S_IMODE((place / name).stat().st_mode) for name in files(place)} == {mode}
    assert stat.S_IMODE((place / "nodes").stat().st_mode) == of_directory
    assert "rack1-n1" not in (place / "nodes/lab-n3.html").read_text(encoding="utf-8")
    assert read_certificates(place / "fleet.json") == {node.node: node for node in whole.nodes}
    assert read_certificates(place / "nodes/lab-n3.json") == {"lab-n3": whole.nodes[2]}


def test_certificates_of_other_nodes_stay(tmp_path: Path, whole: Fleet) -> None:
    certificates.write(whole, tmp_path, mode=certificates.OURS)
    certificates.write(certificates.of_one(whole, whole.nodes[0]), tmp_path, mode=certificates.OURS)
    assert (tmp_path / "nodes/lab-n3.json").exists()
    assert list(read_certificates(tmp_path / "fleet.json")) == ["rack1-n1"]


def test_a_directory_that_cannot_be_is_told(tmp_path: Path, whole: Fleet) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpustrapError) as caught:
        certificates.write(whole, tmp_path / "file" / "out", mode=certificates.OTHERS)
    assert caught.value.problems[0].code == "certificates-not-written"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "is neither a certificate"),
        ('{"kind": "plan"}', "is neither a certificate"),
        ('{"kind": "fleet", "version": 2}', "by a newer gpustrap: version 2"),
        ('{"kind": "certificate", "node": "n1", "verdict": "splendid"}', "does not have the shape"),
    ],
)
def test_what_is_no_certificate_is_refused(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "old.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(GpustrapError) as caught:
        read_certificates(file)
    (problem,) = caught.value.problems
    assert (problem.code, problem.exit_code) == ("certificate-unreadable", ExitCode.USAGE)
    assert words in problem.message


def test_what_got_worse_is_a_warning(make_certificate: Callable[..., Certificate], make_fleet: Any) -> None:
    before, after = make_certificate(), make_certificate(checks=make_certificate().checks[:-2])
    compared = certificates.compare(make_fleet(after), "old.json", {"n1": before})
    assert compared.worse
    assert (compared.exit_code, compared.against) == (ExitCode.WARNINGS, "old.json")
    assert certificates.compare(make_fleet(before), "old.json", {"n1": before}).exit_code is ExitCode.OK


def test_a_node_without_an_earlier_certificate_is_told(make_certificate: Any, make_fleet: Any) -> None:
    compared = certificates.compare(make_fleet(make_certificate()), "old.json", {})
    assert [(c.before, c.after, c.worse) for c in compared.changes] == [("no certificate", "pass", False)]


@pytest.fixture
def gpustrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: Fleet) -> Callable[..., Any]:
    """The verb, in a site of its own where verifying finds `whole`."""
    monkeypatch.setattr("gpustrap.site.inventory.load_nodes", lambda *_: ())
    monkeypatch.setattr("gpustrap.commands.certificates.certify_nodes", lambda *_, **__: whole)
    return lambda *words: CliRunner().invoke(app, ["verify", "--site", str(tmp_path / "site"), *words])


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        ("table", "rack1-n1"),
        ("json", "{"),
        ("junit", "<?xml"),
        ("markdown", "# gpustrap certificate"),
        ("prometheus", "# HELP gpustrap_node_verified"),
    ],
)
def test_every_format_is_printed_alone(
    gpustrap: Callable[..., Any], tmp_path: Path, whole: Fleet, form: str, begin: str
) -> None:
    done = gpustrap("--format", form)
    assert done.exit_code == whole.exit_code
    assert done.stdout.startswith(begin)
    assert "rack2-n4" in done.stderr
    assert ("fleet.html" in done.stderr) is (form == "table")
    assert files(tmp_path / "site/.gpustrap/certificates") >= FLEET


def test_out_and_against(gpustrap: Callable[..., Any], tmp_path: Path, whole: Fleet) -> None:
    before = whole.model_copy(update={"nodes": (whole.nodes[0].model_copy(update={"node": "rack1-n2"}),)})
    certificates.write(before, tmp_path / "old", mode=certificates.OTHERS)
    done = gpustrap("--format", "json", "--against", str(tmp_path / "old/fleet.json"), "--out", str(tmp_path / "new"))
    assert files(tmp_path / "new") >= FLEET
    changes = json.loads(done.stdout)["changes"]
    assert {c["node"] for c in changes if c["worse"]} == {"rack1-n2"}
    shown = gpustrap("--against", str(tmp_path / "old/fleet.json")).stdout
    assert "✗ worse" in shown


def test_a_file_that_is_none_is_refused_before_nodes_are_asked(gpustrap: Callable[..., Any], tmp_path: Path) -> None:
    done = gpustrap("--against", str(tmp_path / "none.json"))
    assert isinstance(done.exception, GpustrapError)
    assert not (tmp_path / "site").exists()


def test_the_result_is_shown_where_it_cannot_be_written(gpustrap: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = gpustrap("--format", "json", "--out", str(tmp_path / "file" / "x"))
    assert json.loads(done.stdout)["kind"] == "fleet"
    assert "certificates-not-written" in done.stderr
    assert done.exit_code == ExitCode.VERIFY_FAILED  # which is worse
