"""report: finds runs, and makes support archives that hold one node's story and no secret."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gpustrap.commands import report
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts, KernelFacts, OsFacts
from gpustrap.model.node import Endpoint, Node, Secrets
from gpustrap.model.request import Request
from gpustrap.model.run import NodeRun, Outcome, RunSummary
from gpustrap.model.site import Site
from gpustrap.report.node_log import lines_about
from gpustrap.site.facts_cache import save_facts

N1 = Node(Endpoint("n1", "n1"), (), Request())
SECRET = "Tr0ub4dor&3"
LEDGER = {"ledger": {"run": {"id": "r1"}, "resources": [{"name": "/etc/x", "state": {"password": "hunter22"}}]}}


def make_run(site: Site, name: str, *nodes: str, text: str = "") -> Path:
    directory = site.runs / name
    directory.mkdir(parents=True)
    runs = tuple(NodeRun(node=n, outcome=Outcome.CHANGED, changed_tasks=(f"task of {n}",)) for n in nodes)
    summary = RunSummary(id=name, started="2026-01-01T00:00:00+00:00", seconds=1, nodes=runs)
    (directory / "summary.json").write_text(summary.model_dump_json())
    events = [{"node": n, "message": f"said by {n} {text}", "arguments": {"token": "t0ken99"}} for n in nodes]
    lines = [json.dumps(e) for e in events] + ['{"node": "n1", "cut o']
    (directory / "events.jsonl").write_text("\n".join(lines))
    log = "\n".join(f"ok: [{n}] => {text}" for n in nodes)
    (directory / "ansible.log").write_text(f"TASK [docker : Ensure x] ***\n{log}\n")
    return directory


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(report, "ask_verb", lambda *_, **__: {"n1": LEDGER})
    return Site(tmp_path)


def bundle_of(site: Site, **secrets: str) -> dict[str, str]:
    made = report.make_bundle(site, N1, secrets=Secrets(**secrets))
    return {name: content.decode() for name, content in made.files.items()}


def test_runs_are_found_by_time_and_by_the_beginning_of_their_id(site: Site) -> None:
    make_run(site, "20260102T000000Z-b", "n1")
    make_run(site, "20260101T000000Z-a", "n1")
    (site.runs / "20260103T000000Z-c").mkdir()  # one that was killed has no summary
    assert report.find_run(site, None)[0].name == "20260102T000000Z-b"
    assert report.find_run(site, "20260101")[1].id == "20260101T000000Z-a"
    for wrong, code in (("2026", "run-ambiguous"), ("1999", "run-unknown"), ("../..", "run-unknown")):
        with pytest.raises(GpustrapError) as caught:
            report.find_run(site, wrong)
        assert caught.value.problems[0].code == code
        assert caught.value.exit_code is ExitCode.USAGE


def test_no_run_yet_and_a_broken_summary(site: Site) -> None:
    for code in ("no-site", "no-runs"):
        with pytest.raises(GpustrapError) as caught:
            report.find_run(site, None)
        assert caught.value.problems[0].code == code
        site.inventory.mkdir(exist_ok=True)
    (make_run(site, "r", "n1") / "summary.json").write_text("{")
    with pytest.raises(GpustrapError) as caught:
        report.find_run(site, None)
    assert caught.value.problems[0].code == "run-unreadable"


def test_a_missing_report_is_written_when_asked_for(site: Site) -> None:
    directory, summary = report.find_run(site, make_run(site, "r1", "n1").name)
    path = report.report_file(site, directory, summary, "report.html")
    assert "r1" in path.read_text()


def test_an_archive_tells_the_story_of_its_node_alone(site: Site) -> None:
    make_run(site, "r1", "n1", "n2")
    make_run(site, "r2", "n2")
    files = bundle_of(site)
    assert {"facts.json", "lock.json", "ledger.json", "versions.json", "README.txt"} <= set(files)
    assert {"runs/r1/summary.json", "runs/r1/events.jsonl", "runs/r1/ansible.log"} <= set(files)
    assert not any(name.startswith("runs/r2") for name in files)
    everything = "".join(files.values())
    assert "task of n1" in everything
    assert "said by n1" in everything
    assert "n2" not in everything
    assert json.loads(files["versions.json"])["gpustrap"]
    assert all(name in files["README.txt"] for name in files if name != "README.txt")


def test_no_secret_is_in_an_archive(site: Site) -> None:
    facts = Facts(
        os=OsFacts(id="debian", architecture="x86_64"),
        kernel=KernelFacts(running="6.1", cmdline="root=/dev/sda token=boot5ecret"),
        machine_id_hash="0badcafe" * 8,
    )
    save_facts(site, "n1", facts)
    make_run(site, "r1", "n1", text=f"password=hunter22 {SECRET} https://u:pw77777@mirror/x")
    files = bundle_of(site, ssh_password=SECRET, become_password="sud0-pass")
    everything = "".join(files.values())
    for secret in ("hunter22", SECRET, "pw77777", "boot5ecret", "0badcafe", "t0ken99", "sud0-pass"):
        assert secret not in everything, secret
    assert "mirror/x" in everything


def test_a_node_that_does_not_answer_still_has_an_archive(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    error = GpustrapError(Problem("unreachable", "node n1", "does not answer", ExitCode.UNREACHABLE))
    monkeypatch.setattr(report, "ask_verb", lambda *_, **__: {"n1": error})
    files = bundle_of(site)
    assert "does not answer" in files["ledger.json"]
    assert "never inspected" in files["facts.json"]


def test_the_archive_file_is_the_users_alone_and_replaces_nothing(site: Site, tmp_path: Path) -> None:
    made = report.make_bundle(site, N1, secrets=Secrets())
    path = tmp_path / "out.tar.gz"
    made.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as tar:
        members: list[Any] = tar.getmembers()
    assert {m.name for m in members} == {f"gpustrap-n1/{name}" for name in made.files}
    assert {(m.mode, m.uid, m.mtime) for m in members} == {(0o600, 0, 0)}
    with pytest.raises(FileExistsError):
        made.write(path)


LOG = """\
PLAY [Bring nodes to their lock] ***

TASK [docker : Ensure x] ***
ok: [n1]
  "of": "n1"
changed: [n10] => (item=/etc/ten)
  "of": "ten"
changed: [n1 -> localhost] => (item=/etc/one)
--- before: /etc/whose
+++ after: /etc/whose
@@ -1 +1 @@
-secret of n1 or ten
changed: [n10]
FAILED - RETRYING: [n10]: Ensure x (3 retries left).
[WARNING]: Platform linux on host n10 is odd
TASK [docker : n10 is named in a heading] ***
[WARNING]: host n10 is odd again
[WARNING]: odd in general
included: /x.yml for n1, n10
fatal: [n10]: UNREACHABLE! => {
    "msg": "of ten"
}
fatal: [n1]: FAILED! => {
    "msg": "of one"
}

PLAY RECAP ***
n1                         : ok=1    changed=1
n10                        : ok=7    changed=1
"""


def test_the_log_of_n10_is_its_own_beside_n1(site: Site) -> None:
    """[n1 is the beginning of [n10 as well, and lines under a node's line and in the recap name nobody."""
    (make_run(site, "r1", "n1", "n10") / "ansible.log").write_text(LOG)
    of_one, of_ten = ("\n".join(lines_about(node, {other}, LOG)) for node, other in (("n1", "n10"), ("n10", "n1")))
    assert bundle_of(site)["runs/r1/ansible.log"].rstrip() == of_one.rstrip()
    for said in ("ok: [n1]", '"of": "n1"', "/etc/one", '"of one"', "n1                         : ok=1"):
        assert said in of_one
        assert said not in of_ten
    for said in ("[n10]", '"of": "ten"', "RETRYING", '"of ten"', "on host n10", "host n10 is odd again", ": ok=7"):
        assert said in of_ten
        assert said not in of_one
    for said in ("TASK [docker : Ensure x]", "odd in general", "PLAY RECAP"):
        assert said in of_one
        assert said in of_ten
    for said in ("whose", "secret of"):
        assert said not in of_one + of_ten


def test_the_log_of_a_run_with_one_node_is_whole() -> None:
    assert "\n".join(lines_about("n1", (), LOG)) == LOG
