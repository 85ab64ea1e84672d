"""Real ansible-runner against this machine: outcomes, claims, secrets, Ctrl-C. No containers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpustrap.model.ledger import Kind
from gpustrap.model.node import Secrets
from gpustrap.model.run import Outcome

BECOME_PASSWORD = "planted-become-5e1f"
NO_LOG_VALUE = "planted-no-log-77aa"


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory of our own that is near enough to the root for sockets; pytest's is not."""
    with tempfile.TemporaryDirectory(prefix="gst-", dir="/tmp") as name:
        yield Path(name)


def processes_of(mark: str) -> list[str]:
    """Command lines of processes that were started for a run, as anyone on the machine may read them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def tasks(root: Path) -> list[dict[str, Any]]:
    return [
        {
            "name": "configure | Write a file",
            "ansible.builtin.copy": {"dest": f"{root}/a.txt", "content": "body-of-a", "mode": "0600"},
        },
        {
            "name": "configure | Make directories",
            "ansible.builtin.file": {"path": f"{root}/{{{{ item }}}}", "state": "directory", "mode": "0700"},
            "loop": ["x", "y"],
        },
        {
            "name": "configure | Skipped",
            "ansible.builtin.file": {"path": f"{root}/never", "state": "directory"},
            "when": False,
        },
        {
            "name": "configure | Write a secret",
            "ansible.builtin.copy": {"dest": f"{root}/s.txt", "content": NO_LOG_VALUE, "mode": "0600"},
            "no_log": True,
            "vars": {"__claims": [{"kind": "file", "name": "{{ inventory_hostname }}-secret"}]},
        },
        {
            "name": "configure | Name the items of a loop",
            "ansible.builtin.command": {"argv": ["/bin/true"]},
            "changed_when": False,
            "loop": ["one", "two"],
            "vars": {"__claims": [{"kind": "unit", "name": "{{ item }}.service"}]},
        },
        {"name": "configure | Restart later", "ansible.builtin.file": {"path": f"{root}/a.txt", "state": "absent"}},
    ]


def names(claims: Any) -> set[tuple[str, str]]:
    return {(c.kind, c.name) for c in claims}


def test_changed_then_unchanged_and_what_was_claimed(content: Any) -> None:
    content.role("files", tasks(content.root)[:-1])
    first = content.run("files")
    assert first.session.code == 0
    assert first.nodes["n1"].outcome is Outcome.CHANGED
    # the no_log task changed too, though its result is hidden
    assert first.nodes["n1"].changed == 3
    assert first.nodes["n1"].skipped == 1
    assert first.nodes["n1"].changed_tasks[0] == "files | configure | Write a file"
    root = content.root
    assert names(first.session.claims["n1"]) == {
        (Kind.FILE, f"{root}/a.txt"),
        (Kind.DIRECTORY, f"{root}/x"),
        (Kind.DIRECTORY, f"{root}/y"),
        (Kind.FILE, "n1-secret"),
        (Kind.UNIT, "one.service"),
        (Kind.UNIT, "two.service"),
    }
    assert {c.role for c in first.session.claims["n1"]} == {"files"}
    second = content.run("files")
    assert second.nodes["n1"].outcome is Outcome.UNCHANGED
    assert names(second.session.claims["n1"]) == names(first.session.claims["n1"])  # unchanged is still claimed


def test_what_a_role_removes_is_claimed_too(content: Any) -> None:
    content.role("files", [tasks(content.root)[0], tasks(content.root)[-1]])
    ran = content.run("files")
    assert names(ran.session.claims["n1"]) == {(Kind.FILE, f"{content.root}/a.txt")}


def test_check_mode_changes_and_claims_nothing(content: Any) -> None:
    content.role("files", tasks(content.root)[:-1])
    ran = content.run("files", check=True)
    assert ran.nodes["n1"].outcome is Outcome.WOULD_CHANGE
    assert ran.session.claims == {}
    assert not (content.root / "a.txt").exists()


def test_a_failure_stops_only_its_own_node_and_is_told_in_the_tools_words(content: Any) -> None:
    content.hosts = {"n1": {"ansible_connection": "local", "broken": True}, "n2": {"ansible_connection": "local"}}
    content.hosts["gone"] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    fail = {
        "name": "install | Install packages",
        "ansible.builtin.command": {"argv": ["/bin/sh", "-c", "echo E: No space left on device >&2; exit 100"]},
        "when": "broken | default(false)",
    }
    content.role("first", [fail])
    content.role("second", tasks(content.root)[:1])
    ran = content.run("first", "second")
    failure = ran.nodes["n1"].failure
    assert ran.nodes["n1"].outcome is Outcome.FAILED
    assert (failure.role, failure.task) == ("first", "install | Install packages")
    assert failure.message == "E: No space left on device"
    assert "df -h" in failure.hint
    assert ran.nodes["n2"].outcome is Outcome.CHANGED
    assert ran.nodes["gone"].outcome is Outcome.UNREACHABLE
    assert "Connection refused" in ran.nodes["gone"].failure.message
    assert "gone" not in ran.session.claims
    assert "n1" not in ran.session.claims  # its only task failed


def test_with_serial_a_batch_that_failed_as_a_whole_stops_the_rest(content: Any) -> None:
    local = {"ansible_connection": "local"}
    content.hosts = {"n1": {**local, "broken": True}, "n2": local, "n3": local}
    fail = {"name": "install | Fail", "ansible.builtin.command": {"argv": ["/bin/false"]}, "when": "broken is defined"}
    content.role("files", [fail, *tasks(content.root)[:1]])
    pairs = content.run("files", variables={"gpustrap_serial": "2"})
    assert [n.outcome for n in pairs.nodes.values()] == [Outcome.FAILED, Outcome.CHANGED, Outcome.UNCHANGED]
    alone = content.run("files", variables={"gpustrap_serial": "1"})
    assert [n.outcome for n in alone.nodes.values()] == [Outcome.FAILED, Outcome.NOT_RUN, Outcome.NOT_RUN]


def test_a_rescued_failure_is_no_failure(content: Any) -> None:
    block = {
        "name": "configure | Try",
        "block": [{"name": "configure | Fails", "ansible.builtin.command": {"argv": ["/bin/false"]}}],
        "rescue": [{"name": "configure | Rescue", "ansible.builtin.debug": {"msg": "fine"}}],
    }
    content.role("files", [block])
    ran = content.run("files")
    assert ran.session.code == 0
    assert ran.nodes["n1"].outcome is Outcome.UNCHANGED
    assert ran.nodes["n1"].failure is None


def test_a_claim_of_the_wrong_shape_is_said_not_swallowed(content: Any) -> None:
    content.role(
        "files",
        [
            {
                "name": "configure | Name nothing",
                "ansible.builtin.command": {"argv": ["/bin/true"]},
                "changed_when": False,
                "vars": {"__claims": [{"name": "no kind"}]},
            }
        ],
    )
    ran = content.run("files")
    assert any("gpustrap_claims" in e.message for e in ran.events if e.kind == "said")


def test_the_module_runs_with_the_python_that_enroll_found_and_the_hosts_own_settings_win_over_none(
    content: Any,
) -> None:
    content.hosts = {"n1": {"ansible_connection": "local", "ansible_python_interpreter": "/no/such/python"}}
    content.role("files", tasks(content.root)[:1])
    assert content.run("files").nodes["n1"].outcome is Outcome.CHANGED


def test_no_secret_is_left_on_disk_in_events_or_in_a_command_line(
    content: Any, monkeypatch: pytest.MonkeyPatch, short_directory: Path
) -> None:
    place = short_directory
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    content.role(
        "files",
        [
            *tasks(content.root)[:-1],
            {
                "name": "configure | Leak",
                "ansible.builtin.command": {"argv": ["/bin/sh", "-c", f"echo {BECOME_PASSWORD} >&2; exit 1"]},
            },
        ],
    )
    seen: list[str] = []
    modes: set[int] = set()

    def watch(_raw: dict[str, Any]) -> None:
        for private in place.glob("gpustrap-*"):
            inputs = [p for n in ("become", "variables.json", "env/settings") if (p := private / n).exists()]
            modes.update(p.stat().st_mode & 0o077 for p in [private, *inputs])
        listing = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        seen.extend(line for line in listing.splitlines() if "ansible" in line)

    ran = content.run("files", secrets=Secrets(become_password=BECOME_PASSWORD), watch=watch)
    assert ran.nodes["n1"].outcome is Outcome.FAILED
    assert any("--become-password-file" in line for line in seen)
    # the leaking task's own argv is the test's; everything else may not show it
    assert not [line for line in seen if BECOME_PASSWORD in line and "echo" not in line]
    assert not [line for line in seen if NO_LOG_VALUE in line]
    assert modes == {0}
    assert list(place.iterdir()) == []  # the private directory is gone
    for file in ran.directory.iterdir():
        text = file.read_text()
        assert file.stat().st_mode & 0o077 == 0
        assert BECOME_PASSWORD not in text
        assert NO_LOG_VALUE not in text
        assert "body-of-a" not in text or file.name == "ansible.log"
    assert "********" in ran.nodes["n1"].failure.message


def test_ctrl_c_ends_everything_and_says_that_the_state_is_unknown(
    content: Any, monkeypatch: pytest.MonkeyPatch, short_directory: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_directory))  # other runs of this machine are not looked at
    content.hosts["n2"] = {"ansible_connection": "local"}
    content.role("slow", [{"name": "install | Sleep", "ansible.builtin.command": {"argv": ["/bin/sleep", "61"]}}])
    private: list[str] = []

    def watch(raw: dict[str, Any]) -> None:
        if raw.get("event") == "runner_on_start" and not private:
            private.append(str(next(short_directory.glob("gpustrap-*"))))
            threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    start = time.monotonic()
    ran = content.run("slow", watch=watch)
    assert time.monotonic() - start < 40
    assert ran.session.cancelled
    assert {n.outcome for n in ran.nodes.values()} == {Outcome.UNKNOWN}
    assert not Path(private[0]).exists()
    assert processes_of(private[0]) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_leaves_nodes_of_earlier_batches_known_and_the_claims_of_a_killed_run_readable(
    content: Any, monkeypatch: pytest.MonkeyPatch, short_directory: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short_directory))
    local = {"ansible_connection": "local"}
    content.hosts = {"n1": local, "n2": {**local, "slow": True}, "n3": local}
    sleep = {
        "name": "install | Sleep",
        "ansible.builtin.command": {"argv": ["/bin/sleep", "61"]},
        "when": "slow is defined",
    }
    content.role("files", [*tasks(content.root)[:1], sleep])

    def watch(raw: dict[str, Any]) -> None:
        data = raw.get("event_data", {})
        if (raw.get("event"), data.get("host"), data.get("task")) == ("runner_on_start", "n2", "install | Sleep"):
            for claims in short_directory.glob("gpustrap-*/claims.jsonl"):
                with claims.open("a") as stream:
                    stream.write('{"kind": "file", "na')  # as a killed callback leaves it
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    ran = content.run("files", watch=watch, variables={"gpustrap_serial": "1"})
    assert ran.session.cancelled
    assert [n.outcome for n in ran.nodes.values()] == [Outcome.CHANGED, Outcome.UNKNOWN, Outcome.NOT_RUN]
    assert names(ran.session.claims["n1"]) == {(Kind.FILE, f"{content.root}/a.txt")}
    assert len(ran.session.claims_lost) == 1


def test_relative_paths_are_meant_from_where_the_user_is(content: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = content.root / "here"
    (here / "group_vars").mkdir(parents=True)
    (here / "group_vars" / "all.yml").write_text("stray: true\n")  # no inventory: must not count
    (here / "vault-pass").write_text("open\n")
    monkeypatch.chdir(here)
    encrypt = [Path(sys.executable).parent / "ansible-vault", "encrypt_string", "--vault-password-file", "vault-pass"]
    said = subprocess.run([*encrypt, "inside"], capture_output=True, text=True, check=True).stdout
    (content.root / "secret.yml").write_text(f"word: {said}")
    content.role(
        "files",
        [
            {"name": "configure | Read", "ansible.builtin.include_vars": {"file": str(content.root / "secret.yml")}},
            {
                "name": "configure | Look",
                "ansible.builtin.assert": {"that": ["word == 'inside'", "stray is not defined"]},
            },
        ],
    )
    ran = content.run("files", vault_password_file="vault-pass")
    assert ran.nodes["n1"].outcome is Outcome.UNCHANGED, ran.nodes["n1"].failure


def test_a_broken_playbook_is_ansibles_failure_not_a_nodes(content: Any) -> None:
    content.role("files", [{"name": "configure | No such module", "no_such_module_at_all": {}}])
    ran = content.run("files")
    assert ran.session.code not in {0, 2}
    assert ran.nodes["n1"].outcome is Outcome.NOT_RUN
    assert any("no_such_module_at_all" in e.message for e in ran.events if e.kind == "said")
