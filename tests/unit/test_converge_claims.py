"""Claims and the ledger they make: whole runs replace, partial runs merge, unread is never complete."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gpustrap.ansible_plugins.callback.gpustrap_claims import append, claims_of, stated
from gpustrap.converge.claims import make_ledger, read_claims
from gpustrap.model.ledger import Claim, Kind, Ledger, Resource, RunMark

OLD = Ledger(
    run=RunMark(id="r1", complete=True),
    tool="0",
    lock_digest="sha256:old",
    resources=(
        Resource(kind=Kind.FILE, name="/etc/kept", role="docker", state={"mode": "0644"}),
        Resource(kind=Kind.PACKAGE, name="jq", role="ubuntu_server", state={"version": "1"}),
    ),
)
JQ = Claim(kind=Kind.PACKAGE, name="jq", role="ubuntu_server")
NEW_JQ = {"kind": "package", "name": "jq", "state": {"version": "2"}}


def ledger_of(
    *, complete: bool, states: list[dict[str, Any]], old: Ledger | None = OLD
) -> tuple[Ledger, tuple[str, ...]]:
    return make_ledger(
        run_id="r2", complete=complete, tool="1", lock_digest="sha256:new", claims=[JQ], states=states, old=old
    )


def test_a_complete_run_replaces_the_ledger() -> None:
    ledger, unread = ledger_of(complete=True, states=[NEW_JQ])
    assert [(r.name, r.state) for r in ledger.resources] == [("jq", {"version": "2"})]
    assert (ledger.run.complete, ledger.lock_digest, unread) == (True, "sha256:new", ())


def test_what_a_complete_run_no_longer_claims_is_left_until_it_is_claimed_again() -> None:
    ledger, _ = ledger_of(complete=True, states=[NEW_JQ])
    assert [(r.name, r.role) for r in ledger.left] == [("/etc/kept", "docker")]
    for complete in (True, False):
        again, _ = ledger_of(complete=complete, states=[NEW_JQ], old=ledger)
        assert again.left == ledger.left
    back = OLD.model_copy(update={"resources": (), "left": (*OLD.resources,)})
    assert [r.name for r in ledger_of(complete=False, states=[NEW_JQ], old=back)[0].left] == ["/etc/kept"]


def test_a_partial_run_keeps_what_it_did_not_touch_and_is_not_complete() -> None:
    ledger, _ = ledger_of(complete=False, states=[NEW_JQ])
    assert {(r.name, str(r.state)) for r in ledger.resources} == {
        ("/etc/kept", "{'mode': '0644'}"),
        ("jq", "{'version': '2'}"),
    }
    assert not ledger.run.complete
    assert ledger.lock_digest == "sha256:old"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "bad",
    [
        '{"kind": "file", "na',
        "{}",
        "[1]",
        '{"kind": "file", "name": "/a", "role": "r"}',
        "\udce9",
        '{"node": "n1", "k{"node": "n1"}',
    ],
)
def test_a_line_that_was_cut_off_takes_no_other_claim_with_it(tmp_path: Path, bad: str, after: bool) -> None:
    whole = {"kind": "package", "name": "jq", "role": "ubuntu_server", "node": "n1"}
    other = whole | {"name": "curl"}
    file = tmp_path / "claims.jsonl"
    file.write_text(f"{json.dumps(whole)}\n{bad}" + after * f"\n{json.dumps(other)}\n", errors="surrogateescape")
    claims, lost = read_claims(file)
    assert [c.name for c in claims["n1"]] == (["jq", "curl"] if after else ["jq"])
    assert len(lost) == 1
    assert read_claims(tmp_path / "none") == ({}, ())


def test_lines_written_at_once_are_whole(tmp_path: Path) -> None:
    """Threads add lines while workers are forked in between, which add their own, too."""
    file = str(tmp_path / "claims.jsonl")
    batch = "".join(json.dumps({"number": n, "filler": "x" * 300}) + "\n" for n in range(60))

    def add() -> None:
        for _ in range(50):
            append(file, batch)

    context = multiprocessing.get_context("fork")
    threads = [threading.Thread(target=add) for _ in range(2)]
    workers = [context.Process(target=add) for _ in range(4)]
    for one in (*threads, *workers):
        one.start()
    for one in (*threads, *workers):
        one.join()
    assert Path(file).read_text() == batch * 50 * 6


@pytest.mark.parametrize(("size", "writes"), [(100_000, 1), (40_000, 3)])
def test_lines_go_out_in_one_write_and_a_short_one_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, writes: int
) -> None:
    write, sizes = os.write, []

    def short(file: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(file, data[:size])

    monkeypatch.setattr(os, "write", short)
    lines = "a line\n" * 14_000  # 98,000 bytes
    append(str(tmp_path / "c"), lines)
    assert (sizes[0], len(sizes)) == (98_000, writes)
    assert (tmp_path / "c").read_text() == lines


def test_a_first_partial_run_has_a_ledger_too() -> None:
    ledger, _ = ledger_of(complete=False, states=[NEW_JQ], old=None)
    assert [r.name for r in ledger.resources] == ["jq"]
    assert not ledger.run.complete


@pytest.mark.parametrize("states", [[], [{"kind": "package", "name": "jq", "unknown": "dpkg is at work"}]])
def test_what_could_not_be_read_makes_the_run_incomplete(states: list[dict[str, Any]]) -> None:
    ledger, unread = ledger_of(complete=True, states=states)
    assert unread == ("package jq",)
    assert not ledger.run.complete


def test_an_absent_resource_is_a_state_too() -> None:
    ledger, unread = ledger_of(complete=True, states=[{"kind": "package", "name": "jq", "state": {}}])
    assert unread == ()
    assert ledger.resources[0].state == {}


@pytest.mark.parametrize(
    ("action", "arguments", "result", "expected"),
    [
        ("ansible.builtin.apt", {"name": ["jq", "docker.io=26.1.5", "x/stable", "y:amd64"]}, {}, "jq docker.io x y"),
        ("apt", {"name": "jq,curl", "state": "absent"}, {}, "jq curl"),
        ("ansible.builtin.apt", {"update_cache": True, "name": None, "package": None}, {}, ""),
        ("ansible.builtin.apt", {"name": ["nvidia-*"]}, {}, ""),
        ("ansible.builtin.systemd_service", {"name": "docker", "state": "started"}, {}, "docker.service"),
        ("ansible.builtin.systemd_service", {"name": "apt-daily.timer"}, {}, "apt-daily.timer"),
        ("ansible.builtin.systemd_service", {"name": "foo.bar"}, {}, "foo.bar.service"),
        ("ansible.builtin.systemd_service", {"daemon_reload": True, "name": None}, {}, ""),
        ("ansible.builtin.template", {"dest": "/etc/"}, {"dest": "/etc/a.conf"}, "/etc/a.conf"),
        ("ansible.builtin.file", {"path": "/x", "state": "absent"}, {"path": "/x", "state": "absent"}, "/x"),
        ("ansible.builtin.stat", {"path": "/x"}, {}, ""),
        ("ansible.builtin.command", {"argv": ["true"]}, {}, ""),
        ("gpustrap_thing", {}, {"claims": [{"kind": "key", "name": "/f.json#/a"}]}, "/f.json#/a"),
        (
            "ansible.builtin.deb822_repository",
            {"name": "docker"},
            {"dest": "/etc/apt/sources.list.d/docker.sources", "key_filename": "/etc/apt/keyrings/docker.asc"},
            "/etc/apt/sources.list.d/docker.sources /etc/apt/keyrings/docker.asc",
        ),
    ],
)
def test_claims_of(action: str, arguments: dict[str, Any], result: dict[str, Any], expected: str) -> None:
    assert [name for _, name in claims_of(action, arguments, result)] == expected.split()


@pytest.mark.parametrize(
    ("state", "kind"), [("directory", "directory"), ("link", "link"), ("touch", "file"), ("file", "file")]
)
def test_kind_of_a_file(state: str, kind: str) -> None:
    assert claims_of("ansible.builtin.file", {"path": "/x", "state": state}, {})[0][0] == kind


@pytest.mark.parametrize("claims", [["jq"], [{"kind": "file"}], [{"name": "x"}]])
def test_a_malformed_claim_is_an_error(claims: list[Any]) -> None:
    with pytest.raises(ValueError, match="kind and name"):
        stated(claims)
