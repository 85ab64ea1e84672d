"""Observing resources, the ledger on the node, and drift between the two."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import ledger, observe
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Completed, Host, NodeError
from gpustrap.ansible_plugins.module_utils.gpustrap_node.main import main

STATUS = (
    "Package: docker.io\nStatus: install ok installed\nArchitecture: amd64\nVersion: 26.1\n\n"
    "Package: kept\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 2\n\n"
    "Package: half\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 3\n\n"
    "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 4\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "var/lib/dpkg/status": STATUS,
        "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n",
        "etc/group": "root:x:0:\n",
        "etc/docker/daemon.json": '\ufeff{"log-opts": {"max-size": "50m"}, "a/b": [1, {"c~d": null}], "runtimes": {}}',
        "etc/bad.json": "{,}",
        "etc/runtime.toml": '[nvidia-container-cli]\n#user = "x"\nno-cgroups = false\n',
        "etc/file": "content\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "etc/file").chmod(0o640)
    (tmp_path / "etc/link").symlink_to("/etc/file")
    (tmp_path / "etc/dangling").symlink_to("/nowhere")
    (tmp_path / "etc/dir").mkdir()
    (tmp_path / "etc/dir").chmod(0o750)
    os.mkfifo(tmp_path / "etc/pipe")
    return tmp_path


def see(tree: Path, kind: str, name: str):
    return observe.observe_all(Host(str(tree)), [(kind, name)])[0]


OWNER = (
    {"owner": "root", "group": "root"}
    if os.geteuid() == 0
    else {"owner": str(os.geteuid()), "group": str(os.getegid())}
)
FILE = {"sha256": "434728a410a78f56fc1b5899c3593436e61ab0c731e9072d95e96db290205e53", "mode": "0640", **OWNER}


@pytest.mark.parametrize(
    ("kind", "name", "state"),
    [
        ("package", "docker.io", {"version": "26.1", "hold": False}),
        ("package", "docker.io:amd64", {"version": "26.1", "hold": False}),
        ("package", "kept", {"version": "2", "hold": True}),
        ("package", "half", {"version": "3", "hold": False, "status": "half-configured"}),
        ("package", "gone", {}),
        ("package", "never", {}),
        ("file", "/etc/file", FILE),
        ("file", "/etc/link", {**FILE, "link": "/etc/file"}),
        ("file", "/etc/dangling", {"link": "/nowhere", "type": "dangling"}),
        ("file", "/etc/none", {}),
        ("file", "/etc/file/below", {}),
        ("file", "/etc/dir", {"mode": "0750", **OWNER, "type": "directory"}),
        ("directory", "/etc/dir", {"mode": "0750", **OWNER}),
        ("directory", "/etc/file", {"mode": "0640", **OWNER, "type": "file"}),
        ("directory", "/etc/none", {}),
        ("link", "/etc/link", {"target": "/etc/file"}),
        ("link", "/etc/dangling", {"target": "/nowhere"}),
        ("link", "/etc/file", {"type": "file"}),
        ("link", "/etc/none", {}),
        ("key", "/etc/docker/daemon.json#/log-opts/max-size", {"sha256": observe.digest("50m")}),
        ("key", "/etc/docker/daemon.json#/a~1b/1/c~0d", {"sha256": observe.digest(None)}),
        ("key", "/etc/docker/daemon.json#/runtimes", {"sha256": observe.digest({})}),
        ("key", "/etc/docker/daemon.json#/runtimes/nvidia", {}),
        ("key", "/etc/docker/daemon.json#/a~1b/7", {}),
        ("key", "/etc/none.json#/x", {}),
        ("key", "/etc/runtime.toml#/nvidia-container-cli/no-cgroups", {"sha256": observe.digest("false")}),
        ("key", "/etc/runtime.toml#/nvidia-container-cli/user", {}),
    ],
)
def test_state(tree: Path, kind: str, name: str, state: dict) -> None:
    assert see(tree, kind, name) == state


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("key", "/etc/bad.json#/x", "/etc/bad.json#/x: Expecting property name"),
        ("key", "/etc/docker/daemon.json", "a key is named"),
        ("unit", "docker", "systemctl"),
        ("unit", "getty@.service", "template"),
        ("unit", "--help", "not the name of a unit"),
        ("unit", "a b", "not the name of a unit"),
    ],
)
def test_unknown_says_why(tree: Path, kind: str, name: str, words: str) -> None:
    found = see(tree, kind, name)
    assert isinstance(found, str)
    assert words in found


def test_special_files_are_never_opened(tree: Path) -> None:
    assert see(tree, "file", "/etc/pipe")["type"] == "special"


def test_packages_are_unknown_while_dpkg_has_a_journal(tree: Path) -> None:
    (tree / "var/lib/dpkg/updates").mkdir()
    (tree / "var/lib/dpkg/updates/0001").touch()
    assert see(tree, "package", "docker.io") == "dpkg is at work or was interrupted"


def test_packages_are_unknown_without_a_status(tmp_path: Path) -> None:
    assert see(tmp_path, "package", "docker.io") == "dpkg's status cannot be read"


def test_canonical_json_knows_no_order_and_no_spelling() -> None:
    assert observe.digest(json.loads('{"b": 1, "a": "\\u00e9"}')) == observe.digest({"a": "é", "b": 1})
    assert observe.digest(1) != observe.digest("1")


def test_units_are_asked_at_once(monkeypatch) -> None:
    calls = []
    text = (
        "LoadState=loaded\nUnitFileState=enabled\nActiveState=active\n\n"
        "LoadState=not-found\nUnitFileState=\nActiveState=inactive\n\n"
        "LoadState=masked\nUnitFileState=masked\nActiveState=inactive\n\n"
        "LoadState=loaded\nUnitFileState=enabled\nActiveState=reloading\n"
    )

    def run(self, argv, timeout=10.0):
        calls.append(argv)
        return Completed(0, text, "")

    monkeypatch.setattr(Host, "run", run)
    names = ["docker", "none.service", "apt-daily.timer", "ssh.socket"]
    seen = observe.observe_all(Host(), [("unit", n) for n in names])
    assert seen == [
        {"enabled": "enabled", "active": "active"},
        {},
        {"enabled": "masked", "active": "inactive"},
        {"enabled": "enabled", "active": "active"},
    ]
    assert [c[-4:] for c in calls] == [["docker.service", "none.service", "apt-daily.timer", "ssh.socket"]]


def test_answers_that_do_not_fit_the_question_are_unknown() -> None:
    assert "1 answers for 2" in observe.parse_units("LoadState=loaded\n", ["a.service", "b.service"])["a.service"]


def test_a_hundred_resources_are_quick(tree: Path) -> None:
    (tree / "var/lib/dpkg/status").write_text((STATUS + "\nDescription: filler\n" + " text\n" * 20) * 800)
    resources = [{"kind": "package", "name": "docker.io"}, {"kind": "file", "name": "/etc/file"}] * 50
    start = time.process_time()
    assert len(main({"verb": "observe", "root": str(tree), "args": {"resources": resources}})["data"]["states"]) == 100
    assert time.process_time() - start < 2  # 0.1 s; generous, for a busy machine


@pytest.mark.parametrize(
    "bad", [{"kind": "secret", "name": "x"}, {"kind": "file"}, "file", {"kind": "file", "name": 1}]
)
def test_malformed_resource_is_refused(tree: Path, bad) -> None:
    answer = main({"verb": "observe", "root": str(tree), "args": {"resources": [bad]}})
    assert answer["error"]["code"] == "bad-request"


# -- the ledger ------------------------------------------------------------------------------------------------------


def ask(tree: Path, verb: str, **args):
    return main({"verb": verb, "root": str(tree), "args": args})


def make(*resources: tuple[str, str, dict], run: str = "r1") -> dict:
    rows = [{"kind": k, "name": n, "role": "docker", "state": s} for k, n, s in resources]
    return {
        "version": 1,
        "run": {"id": run, "open": False, "complete": True},
        "tool": "0.1",
        "lock_digest": "sha256:1",
        "resources": rows,
    }


def test_a_run_from_its_mark_to_its_drift(tree: Path) -> None:
    assert ask(tree, "ledger-open", run_id="r1")["data"] == {"open_run": "r1", "left_open": None}
    assert ask(tree, "ledger-read")["data"] == {"ledger": None, "open_run": "r1", "unknown": ""}
    stored = make(("package", "docker.io", {"version": "26.1", "hold": False}), ("file", "/etc/file", FILE))
    assert ask(tree, "ledger-close", ledger=stored)["data"] == {"open_run": None}
    found = ask(tree, "drift")["data"]
    assert (found["items"], found["checked"], found["lock_digest"]) == ([], 2, "sha256:1")
    assert found["ledger_run"] == {"id": "r1", "open": False, "complete": True}
    (tree / "etc/file").write_text("edited\n")
    (tree / "var/lib/dpkg/status").write_text("Package: other\nStatus: install ok installed\nVersion: 1\n")
    package, file = ask(tree, "drift")["data"]["items"]
    assert package == {
        "kind": "package",
        "name": "docker.io",
        "role": "docker",
        "wanted": {"version": "26.1", "hold": False},
        "found": {},
        "unknown": "",
    }
    assert file["found"]["sha256"] != file["wanted"]["sha256"]


def test_files_are_roots_alone(tree: Path) -> None:
    ask(tree, "ledger-open", run_id="r1")
    ask(tree, "ledger-close", ledger=make())
    state = tree / "var/lib/gpustrap"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    found = sorted((p.name, stat.S_IMODE(p.stat().st_mode)) for p in state.iterdir())
    assert found == [("before.json", 0o600), ("ledger.json", 0o600)]


def test_unreadable_resource_is_an_item_that_says_why(tree: Path) -> None:
    ask(tree, "ledger-close", ledger=make(("key", "/etc/bad.json#/x", {"sha256": "0"})))
    (item,) = ask(tree, "drift")["data"]["items"]
    assert item["unknown"].startswith("/etc/bad.json#/x: Expecting")
    assert item["found"] == {}


def test_absent_on_purpose_is_in_sync_until_it_comes_back(tree: Path) -> None:
    ask(tree, "ledger-close", ledger=make(("file", "/etc/unwanted", {})))
    assert ask(tree, "drift")["data"]["items"] == []
    (tree / "etc/unwanted").write_text("back")
    assert len(ask(tree, "drift")["data"]["items"]) == 1


def test_an_open_run_is_told_and_another_runs_mark_stays(tree: Path) -> None:
    ask(tree, "ledger-open", run_id="r1")
    assert ask(tree, "ledger-open", run_id="r2")["data"]["left_open"] == "r1"
    assert ask(tree, "ledger-close", ledger=make(run="r1"))["data"] == {"open_run": "r2"}
    assert ask(tree, "drift")["data"]["open_run"] == "r2"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "run": {"id": 1}}', "\xff"])
def test_corrupt_ledger_is_unknown_never_empty(tree: Path, text: str) -> None:
    ask(tree, "ledger-close", ledger=make())
    (tree / "var/lib/gpustrap/ledger.json").write_text(text, encoding="latin-1")
    for verb in ("ledger-read", "drift"):
        found = ask(tree, verb)["data"]
        assert "corrupt" in found["unknown"]
        assert not found.get("ledger")


def test_corrupt_ledger_can_be_written_anew(tree: Path) -> None:
    ask(tree, "ledger-close", ledger=make())
    (tree / "var/lib/gpustrap/ledger.json").write_text("{")
    assert ask(tree, "ledger-close", ledger=make(run="r2"))["ok"]
    assert ask(tree, "ledger-read")["data"]["ledger"]["run"]["id"] == "r2"


@pytest.mark.parametrize("before", [None, "r0", "unnamed"])
def test_a_run_that_changed_nothing_takes_its_mark_back(tree: Path, before: str | None) -> None:
    if before:
        ask(tree, "ledger-open", run_id="r0")
    if before == "unnamed":
        (tree / "var/lib/gpustrap/open-run").write_text("not a run id!\n")
    assert ask(tree, "ledger-open", run_id="r1")["data"]["left_open"] == before
    assert ask(tree, "ledger-release", run_id="r9", left_open=before)["data"] == {"open_run": "r1"}  # not its own
    assert ask(tree, "ledger-release", run_id="r1", left_open=before)["data"] == {"open_run": before}
    assert ask(tree, "ledger-read")["data"]["open_run"] == before


@pytest.mark.parametrize("verb", ["ledger-open", "ledger-close"])
def test_a_link_in_place_of_our_directory_is_refused(tree: Path, verb: str) -> None:
    (tree / "elsewhere").mkdir()
    (tree / "var/lib/gpustrap").symlink_to("/elsewhere")
    answer = ask(tree, verb, run_id="r1", ledger=make())
    assert answer["error"]["code"] == "state-not-ours"
    assert list((tree / "elsewhere").iterdir()) == []
    assert "link" in ask(tree, "ledger-read")["data"]["unknown"]


def test_a_ledger_others_could_write_is_not_trusted(tree: Path) -> None:
    ask(tree, "ledger-close", ledger=make())
    (tree / "var/lib/gpustrap/ledger.json").chmod(0o666)
    assert "only root can write" in ask(tree, "drift")["data"]["unknown"]


def test_a_link_in_place_of_the_ledger_is_not_followed(tree: Path) -> None:
    ask(tree, "ledger-close", ledger=make())
    file = tree / "var/lib/gpustrap/ledger.json"
    file.rename(tree / "elsewhere.json")
    file.symlink_to(tree / "elsewhere.json")
    assert "ledger.json" in ask(tree, "drift")["data"]["unknown"]


def test_failed_write_leaves_the_old_ledger_whole(tree: Path, monkeypatch) -> None:
    ask(tree, "ledger-close", ledger=make())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger.os, "fsync", full)
    answer = ask(tree, "ledger-close", ledger=make(run="r2"))
    assert answer["error"] == {
        "code": "state-not-writable",
        "message": answer["error"]["message"],
    }
    assert "No space left" in answer["error"]["message"]
    monkeypatch.undo()
    assert ask(tree, "ledger-read")["data"]["ledger"]["run"]["id"] == "r1"
    assert sorted(p.name for p in (tree / "var/lib/gpustrap").iterdir()) == ["ledger.json"]


@pytest.mark.parametrize("run_id", ["", "../x", "a b", "-x", None, "x" * 200, "a\n"])
def test_strange_run_id_is_refused(tree: Path, run_id) -> None:
    assert ask(tree, "ledger-open", run_id=run_id)["error"]["code"] == "bad-request"


@pytest.mark.parametrize("bad", [None, {}, {"version": 1}, {**make(), "resources": [{"kind": "file", "name": "/x"}]}])
def test_malformed_ledger_is_refused(tree: Path, bad) -> None:
    assert ask(tree, "ledger-close", ledger=bad)["error"]["code"] == "bad-request"
    assert not (tree / "var/lib/gpustrap").exists()


def test_no_ledger_yet_is_not_an_error(tree: Path) -> None:
    found = ask(tree, "drift")["data"]
    assert (found["ledger_run"], found["unknown"], found["items"], found["checked"]) == (None, "", [], 0)


def test_without_rights_the_ledger_is_unknown(tree: Path, monkeypatch) -> None:
    ask(tree, "ledger-close", ledger=make())

    def denied(host: Host, path: str) -> str:
        raise NodeError("ledger-unreadable", f"{path}: Permission denied")

    monkeypatch.setattr(ledger, "trusted", denied)
    assert "Permission denied" in ask(tree, "drift")["data"]["unknown"]
