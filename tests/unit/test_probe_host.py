"""The one way to the machine: links, limits, commands, locks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import apt_sources, dpkg, system
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host
from gpustrap.ansible_plugins.module_utils.gpustrap_node.main import main, tidy

HOLD = """
import fcntl, sys
stream = open(sys.argv[1], "w")
fcntl.lockf(stream, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held_lock(tmp_path: Path):
    """A lock file of dpkg, held by another process as dpkg holds it."""
    lock = tmp_path / "var/lib/dpkg/lock-frontend"
    lock.parent.mkdir(parents=True)
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"held\n"
    yield lock, child
    child.communicate(b"")


def test_lock_holder_is_named_and_the_lock_not_taken(tmp_path: Path, held_lock) -> None:
    _, child = held_lock
    host = Host(str(tmp_path))
    (tmp_path / f"proc/{child.pid}").mkdir(parents=True)
    (tmp_path / f"proc/{child.pid}/cmdline").write_bytes(b"/usr/bin/python3\0/usr/bin/unattended-upgrade\0")
    found = dpkg.health(host, {})["locks"]
    assert found == [
        {
            "path": "/var/lib/dpkg/lock-frontend",
            "pid": child.pid,
            "command": "/usr/bin/python3 /usr/bin/unattended-upgrade",
        }
    ]


def test_busy_dpkg_is_not_called_interrupted(tmp_path: Path, held_lock) -> None:
    (tmp_path / "var/lib/dpkg/updates").mkdir()
    (tmp_path / "var/lib/dpkg/updates/0000").touch()
    assert dpkg.health(Host(str(tmp_path)), {})["interrupted"] is None


def test_lock_of_a_file_that_may_not_be_opened_is_found_in_proc(tmp_path: Path, held_lock, monkeypatch) -> None:
    _, child = held_lock

    def refuse(path, flags, *rest):
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/locks").write_text(Path("/proc/locks").read_text())
    monkeypatch.setattr(dpkg.os, "open", refuse)
    monkeypatch.setattr(Host, "read", lambda self, path: Path("/proc/locks").read_text() if "locks" in path else None)
    found = dpkg.lock_holder(Host(str(tmp_path)), "/var/lib/dpkg/lock-frontend")
    assert found is not None
    assert found["pid"] == child.pid


def test_free_lock_has_no_holder(tmp_path: Path) -> None:
    lock = tmp_path / "var/lib/dpkg/lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert dpkg.health(Host(str(tmp_path)), {})["locks"] == []


def test_proc_locks_leaves_out_waiting_and_flock() -> None:
    text = (
        "1: POSIX  ADVISORY  WRITE 4711 08:02:1048 0 EOF\n"
        "1: -> POSIX  ADVISORY  WRITE 4712 08:02:1048 0 EOF\n"
        "2: FLOCK  ADVISORY  WRITE 99 00:1a:77 0 EOF\n"
        "3: POSIX  ADVISORY  READ 98 fe:00:12 0 EOF\n"
        "4: OFDLCK ADVISORY  WRITE -1 fe:00:13 0 EOF\n"
    )
    assert dpkg.parse_proc_locks(text) == {(8, 2, 1048): 4711, (0xFE, 0, 13): -1}


def test_commands_end_at_their_time_limit_with_all_their_children() -> None:
    host, start = Host(), time.monotonic()
    assert host.run(["sh", "-c", "sleep 30 & sleep 30"], timeout=0.3) is None
    assert time.monotonic() - start < 5
    assert host.notes == ["sh -c sleep 30 & sleep 30: no answer within 0 s"]


def test_used_up_budget_runs_nothing_more() -> None:
    host = Host(budget=-1)
    assert host.run(["true"]) is None
    assert "used up" in host.notes[0]


def test_missing_command_is_no_error_and_a_tree_runs_none(tmp_path: Path) -> None:
    host = Host()
    assert host.run(["gpustrap-no-such-command"]) is None
    assert host.notes == []
    assert Host(str(tmp_path)).run(["true"]) is None


def test_commands_get_no_environment_of_ours(monkeypatch) -> None:
    monkeypatch.setenv("GPUSTRAP_TEST_SECRET", "hunter2")
    assert "hunter2" not in Host().run(["env"]).stdout


def test_links_of_a_tree_never_leave_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/one").symlink_to("/etc/passwd")
    (tmp_path / "etc/two").symlink_to("../../../../../etc/passwd")
    (tmp_path / "etc/loop").symlink_to("loop")
    host = Host(str(tmp_path))
    assert host.read("/etc/one") is None
    assert host.read("/etc/two") is None
    assert host.read("/etc/loop") is None
    assert host.notes == ["/etc/loop: Too many levels of symbolic links"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_denied_is_noted_and_not_taken_for_absent(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        host = Host()
        assert host.read(str(secret)) is None
        assert host.notes == [f"{secret}: Permission denied"]
    finally:
        os.seteuid(0)


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert Host(str(tmp_path)).read("/pipe") == ""


def test_too_large_a_file_is_noted(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 100)
    host = Host(str(tmp_path))
    assert host.read_bytes("/big", limit=10) is None
    assert host.notes == ["/big: larger than 10 bytes"]


def test_answers_are_fit_for_the_wire() -> None:
    assert tidy({"a": "\udce9", "b": ["x" * 5000, 1, None]}) == {"a": "?", "b": ["x" * 4090 + " …", 1, None]}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"verb": "rm"},
        {"verb": "facts", "args": 1},
        {"verb": "facts", "args": {"packages": "bash"}},
        {"verb": "facts", "budget": "x"},
    ],
)
def test_bad_request_says_so(request_) -> None:
    assert main(request_)["error"]["code"] == "bad-request"


def test_a_fault_of_ours_is_an_answer_too(monkeypatch) -> None:
    from gpustrap.ansible_plugins.module_utils.gpustrap_node import facts

    monkeypatch.setattr(facts.pci, "pci_facts", lambda host: 1 / 0)
    error = main({"verb": "facts"})["error"]
    assert error["code"] == "probe-failed"
    assert "ZeroDivisionError" in error["message"]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("http://A.example/debian/", "http://a.example/debian"),
        ("HTTPS://a.example:443/x", "https://a.example/x/"),
        ("http://a.example:80//x", "http://a.example/x"),
    ],
)
def test_spellings_of_one_place_are_equal(one: str, two: str) -> None:
    assert apt_sources.normal(one) == apt_sources.normal(two)


def test_different_places_stay_different() -> None:
    places = ["http://a/x", "https://a/x", "http://a/X", "http://a:8080/x", "cdrom:[x]/"]
    assert len({apt_sources.normal(p) for p in places}) == len(places)


def test_status_of_every_shape_is_read() -> None:
    sound = "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n"
    text = sound + "\n\n\nnot a stanza\n\nPackage: b\n\nPackage: c\nStatus: broken\n"
    assert list(dpkg.parse_status(text)) == ["a:all", "a"]


@pytest.mark.parametrize(
    ("running", "installed", "newest"),
    [
        ("6.8.0-40-generic", ["6.8.0-117-generic", "6.14.0-1-lowlatency"], "6.8.0-117-generic"),
        ("6.12.9-amd64", ["6.12.48+deb13-amd64", "6.16.3+deb13-cloud-amd64"], "6.12.48+deb13-amd64"),
        ("6.1.0-9-amd64", ["6.1.0-28-amd64", "6.12.9+bpo-amd64"], "6.12.9+bpo-amd64"),
        ("6.16-rc7-amd64", ["6.16-amd64"], "6.16-amd64"),
        ("6.18.44-fc-v782", ["6.1.0-28-amd64"], ""),
    ],
)
def test_newest_kernel_of_the_same_flavour(running: str, installed: list[str], newest: str) -> None:
    assert system.newest_of_flavour(running, installed) == newest


def test_a_password_with_an_at_sign_leaves_no_tail() -> None:
    assert apt_sources.mask("https://me:pa@s3cr3t@c.example/debian") == "https://me:***@c.example/debian"
