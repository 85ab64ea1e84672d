"""The unit that goes on with an apply after a reboot: once, never in a loop, and never where it could not."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node import main, reboots, resume
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host

COMMAND = ["/home/ann/my venv/bin/python", "-P", "-m", "gpustrap", "apply", "--site", '/home/ann/50% "site"$']
MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:5 / /home/ann rw - {kind} /home/.ann rw
24 22 0:6 / /tmp rw - tmpfs tmpfs rw
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "home/ann/site").mkdir(parents=True)
    (tmp_path / "tmp/site").mkdir(parents=True)
    (tmp_path / "srv/site").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS.format(kind="ext4"))
    boot(tmp_path, "one")
    return tmp_path


def boot(root: Path, name: str) -> None:
    (root / "proc/sys/kernel/random/boot_id").write_text(f"{name}\n")


def ask(root: Path, verb: str = "reboot-here", **changed: Any) -> dict[str, Any]:
    args = {
        "command": COMMAND,
        "directory": "/srv/site",
        "environment": {"HOME": "/root", "GPUSTRAP_VAULT_PASSWORD_FILE": '/srv/a "key"'},
        "needs": ["/srv/site"],
        "note": "rebooted, not ended\n",
        "stage": "driver",
        "target": "driver 595",
        "why": "it is installed and not loaded",
    }
    return main.main({"verb": verb, "root": str(root), "args": args | changed})


def test_the_unit_removes_itself_before_it_starts_anything(root: Path) -> None:
    assert ask(root)["ok"]
    unit = (root / "etc/systemd/system/gpustrap-resume.service").read_text()
    lines = unit.splitlines()
    assert lines.index(f"ExecStartPre=/bin/rm -f {resume.UNIT} {resume.WANTED}") < next(
        number for number, line in enumerate(lines) if line.startswith("ExecStart=")
    )
    assert "Restart" not in unit
    assert (root / resume.WANTED[1:]).readlink() == Path(resume.UNIT)
    assert reboots.history(Host(str(root)))["driver"]["target"] == "driver 595"


def test_the_words_of_the_command_survive_systemd(root: Path) -> None:
    ask(root)
    unit = (root / "etc/systemd/system/gpustrap-resume.service").read_text()
    line = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart="))
    assert [w.replace("%%", "%").replace("$$", "$") for w in words] == COMMAND
    assert 'RequiresMountsFor="/srv/site"\n' in unit


def test_what_root_alone_may_read_is_roots_alone(root: Path) -> None:
    ask(root)
    for path in ("var/log/gpustrap", "var/log/gpustrap/resume.log", "var/lib/gpustrap/resume.env"):
        assert (root / path).stat().st_mode & 0o077 == 0, path
    assert 'GPUSTRAP_VAULT_PASSWORD_FILE="/srv/a \\"key\\""' in (root / "var/lib/gpustrap/resume.env").read_text()
    note = root / "etc/motd.d/gpustrap"
    assert (note.read_text(), note.stat().st_mode & 0o777) == ("rebooted, not ended\n", 0o644)
    assert note.parent.stat().st_mode & 0o777 == 0o755


def test_a_reboot_loop_is_not_begun_and_leaves_no_unit(root: Path) -> None:
    ask(root)
    boot(root, "two")
    again = ask(root)
    assert again["error"]["code"] == "reboot-loop"
    for path in (resume.UNIT, resume.WANTED, resume.ENVIRONMENT, resume.NOTE):
        assert not os.path.lexists(root / path[1:]), path
    assert ask(root, target="driver 610")["ok"]


@pytest.mark.parametrize(
    ("place", "kind", "words"),
    [
        ("/home/ann/site", "ext4", ""),
        ("/home/ann/site", "ecryptfs", "closed until its user logs in"),
        ("/home/ann/site", "fuse.gocryptfs", "closed until its user logs in"),
        ("/home/ann/site", "zfs", ""),
        ("/tmp/site", "ext4", "gone after the reboot"),
        ("/srv/site", "ecryptfs", ""),
        ("/home/bob/site", "ext4", "cannot be read by root"),
    ],
)
def test_a_home_that_is_closed_at_boot_is_said_before_anything_is_done(
    root: Path, place: str, kind: str, words: str
) -> None:
    (root / "proc/self/mountinfo").write_text(MOUNTS.format(kind=kind))
    answer = ask(root, needs=["/srv/site", place])
    if not words:
        assert answer["ok"]
        return
    assert answer["error"]["code"] == "resume-impossible"
    assert answer["error"]["message"].startswith(place)
    assert words in answer["error"]["message"]
    assert not (root / "etc/systemd").exists()
    assert reboots.history(Host(str(root))) == {}


def test_a_mount_that_systemd_only_came_upon_is_no_mount_of_the_boot(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "_mounted_by_boot", lambda _host, where: where != "/home/ann")
    assert "not mounted by the boot" in ask(root, needs=["/home/ann/site"])["error"]["message"]
    assert ask(root)["ok"]


def test_the_next_note_takes_the_place_of_the_last_and_none_leaves_nothing(root: Path) -> None:
    ask(root)
    assert ask(root, "leave-note", note="ended well\n")["ok"]
    assert (root / "etc/motd.d/gpustrap").read_text() == "ended well\n"
    assert not os.path.lexists(root / resume.UNIT[1:])
    assert not os.path.lexists(root / resume.WANTED[1:])
    assert ask(root, "leave-note", note="")["ok"]
    assert not (root / "etc/motd.d/gpustrap").exists()
