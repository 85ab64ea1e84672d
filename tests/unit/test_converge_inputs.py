"""What Ansible is told about a connection, and what is refused before the first change."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gpustrap.converge import session
from gpustrap.converge.preflight import MIN_FREE_BYTES, MIN_FREE_INODES, preflight
from gpustrap.converge.session import PLANNING_TAG, Settings, Target, connection_variables, private_directory
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import CpuFacts, Facts, FilesystemFacts, KernelFacts, LockHolder, OsFacts, PackageManagerFacts
from gpustrap.model.lock import NodeLock
from gpustrap.model.node import Access, Endpoint, Escalation

ENDPOINT = Endpoint("n1", "n1")
DEFAULTS = ("-o", "ControlMaster=auto")


def variables(access: Access, endpoint: Endpoint = ENDPOINT, identity: Path | None = None) -> dict[str, object]:
    return connection_variables(Target(endpoint, access), Path("/my site/100%/known_hosts"), identity, DEFAULTS)


@pytest.mark.parametrize(
    ("escalation", "become"), [(Escalation.ROOT, False), (Escalation.NOPASSWD, True), (Escalation.PASSWORD, True)]
)
def test_root_needs_no_sudo(escalation: Escalation, become: bool) -> None:
    assert variables(Access(escalation))["ansible_become"] is become


def test_sudo_rs_and_requiretty_are_respected() -> None:
    found = variables(Access(Escalation.PASSWORD, become_exe="sudo.ws", requiretty=True))
    assert found["ansible_become_exe"] == "sudo.ws"
    assert found["ansible_pipelining"] is False
    assert "ansible_pipelining" not in variables(Access(Escalation.PASSWORD))


def test_the_python_of_the_inventory_wins_over_that_of_enroll() -> None:
    access = Access(Escalation.ROOT, python="/usr/bin/python3")
    assert variables(access)["ansible_python_interpreter"] == "/usr/bin/python3"
    endpoint = Endpoint("n1", "n1", python="/opt/python3")
    assert variables(access, endpoint)["ansible_python_interpreter"] == "/opt/python3"


def test_all_ssh_arguments_once_the_users_before_ours() -> None:
    endpoint = Endpoint("n1", "n1", ssh_args=("-J", "jump", "-o", "ControlMaster=no"), private_key="/home/u/.ssh/k")
    found = variables(Access(Escalation.ROOT), endpoint, Path("/my site/id"))
    words = shlex.split(str(found["ansible_ssh_args"]))
    assert words[1].startswith('UserKnownHostsFile="/my site/100%%/known_hosts" "')
    assert words.count("-J") == 1
    assert words.index("ControlMaster=no") < words.index("ControlMaster=auto")
    assert words[words.index("-i") + 1] == "/home/u/.ssh/k"
    assert found["ansible_ssh_common_args"] == found["ansible_ssh_extra_args"] == ""
    assert found["ansible_ssh_private_key_file"] == "/my site/id"


def test_node_that_dies_without_a_goodbye_is_not_waited_for() -> None:
    """Of a node without power nothing comes any more: ssh has to ask, or apply would wait for hours."""
    argv = ["ssh", "-G", "-F", "none", *session.ssh_defaults(), "n1"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = dict(line.split(" ", 1) for line in said.splitlines())
    assert 60 <= int(found["serveraliveinterval"]) * int(found["serveralivecountmax"]) <= 180
    assert found["controlpersist"] == "60"


def test_a_run_never_plans_on_the_way_even_where_the_lock_lost_a_node(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "site.yml", (tmp_path / "inventory",), (), tmp_path / "known_hosts")
    words = session._arguments(tmp_path, settings)
    assert words[words.index("--skip-tags") + 1] == PLANNING_TAG


def test_a_connection_that_does_not_end_keeps_nothing_else_from_ending(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hangs(argv: list[str], **_more: Any) -> None:
        raise subprocess.TimeoutExpired(argv, 10)

    (tmp_path / "cp").mkdir()
    (tmp_path / "cp" / "socket").touch()
    monkeypatch.setattr(session.subprocess, "run", hangs)
    session._end_connections(tmp_path)


def test_the_private_directory_is_private_short_and_gone() -> None:
    with private_directory() as private:
        assert private.stat().st_mode & 0o777 == 0o700
        assert len(str(private / "cp")) + 28 < 104
        (private / "secret").write_text("x")
    assert not private.exists()


def test_what_a_killed_run_left_goes_with_the_next_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed cannot clean up, and its sudo password must not lie there for good."""
    code = "import os; from gpustrap.converge import session as s\nwith s.private_directory(): os.kill(os.getpid(), 9)"
    with tempfile.TemporaryDirectory(prefix="gst-", dir="/tmp") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": name}, check=False)
        [left] = Path(name).iterdir()
        (left / "become").write_text("secret")
        (Path(name) / "gpustrap-mine").mkdir()
        with private_directory() as first, private_directory() as second:
            assert not left.exists()
            assert first.exists()
            assert second.exists()
        assert [path.name for path in Path(name).iterdir()] == ["gpustrap-mine"]


def test_the_private_directory_has_a_path_that_no_shell_takes_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", "a b")
    with private_directory() as private:
        assert " " not in str(private)


def facts(*filesystems: FilesystemFacts, locks: tuple[LockHolder, ...] = (), interrupted: bool = False) -> Facts:
    return Facts(
        os=OsFacts(id="debian", architecture="x86_64"),
        kernel=KernelFacts(running="6.1"),
        cpu=CpuFacts(),
        filesystems=filesystems,
        package_manager=PackageManagerFacts(kind="apt", locks=locks, interrupted=interrupted),
    )


def mounted(mount: str, free: int = MIN_FREE_BYTES, inodes: int = MIN_FREE_INODES) -> FilesystemFacts:
    return FilesystemFacts(mount=mount, size=1 << 40, free=free, inodes=1 << 20, inodes_free=inodes)


@pytest.mark.parametrize(
    ("filesystems", "refused"),
    [
        ([mounted("/")], []),
        ([mounted("/", free=MIN_FREE_BYTES - 1)], ["/"]),
        ([mounted("/", inodes=MIN_FREE_INODES - 1)], ["/"]),
        ([mounted("/"), mounted("/var", free=0)], ["/var"]),
        ([mounted("/"), mounted("/home", free=0)], []),
        ([mounted("/"), mounted("/variety", free=0)], []),
        ([mounted("/"), mounted("/var/cache/apt", free=0)], ["/var/cache/apt"]),
        ([mounted("/"), mounted("/var/lib/docker", free=0)], ["/var/lib/docker"]),
        ([mounted("/"), mounted("/data", free=0)], ["/data"]),  # conda's prefix is there
        ([], []),
    ],
)
def test_a_full_disk_is_refused_before_the_first_change(filesystems: list[FilesystemFacts], refused: list[str]) -> None:
    roles: dict[str, dict[str, Any]] = {"docker": {}, "conda": {"conda_prefix": "/data/conda"}}
    entry = NodeLock(request_digest="r", system_digest="s", os="debian 13", choices=(), roles=roles)
    problems, _ = preflight("n1", facts(*filesystems), entry)
    assert [p.message.split()[2] for p in problems] == refused
    assert all((p.code, p.exit_code, p.subject) == ("disk-full", ExitCode.REFUSED, "node n1") for p in problems)


def test_what_no_role_fills_may_be_full() -> None:
    full = [mounted("/"), mounted("/var/lib/docker", free=0), mounted("/opt", free=0)]
    assert preflight("n1", facts(*full), None) == ((), ())


def test_a_busy_or_interrupted_package_manager_is_mentioned_not_refused() -> None:
    lock = LockHolder(path="/var/lib/dpkg/lock-frontend", pid=24459, command="unattended-upgr")
    problems, notes = preflight("n1", facts(mounted("/"), locks=(lock,), interrupted=True), None)
    assert problems == ()
    assert "unattended-upgr (pid 24459)" in notes[0]
    assert "interrupted" in notes[1]
