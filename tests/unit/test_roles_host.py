"""gpustrap_hostname, gpustrap_timezone and gpustrap_unit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpustrap.ansible_plugins.module_utils import gpustrap_host as host

LOCAL = "127.0.0.1\tlocalhost\n"


@pytest.mark.parametrize(
    ("hosts", "name", "wanted"),
    [
        (LOCAL, "n1", LOCAL + "127.0.1.1\tn1\t# gpustrap\n"),
        (LOCAL, "n1.example.org", LOCAL + "127.0.1.1\tn1.example.org n1\t# gpustrap\n"),
        ("", "n1", "127.0.1.1\tn1\t# gpustrap\n"),
        (LOCAL + "10.0.0.5 n1\n", "n1", LOCAL + "10.0.0.5 n1\n"),
        (LOCAL + "# 10.0.0.5 n1\n", "n1", LOCAL + "# 10.0.0.5 n1\n127.0.1.1\tn1\t# gpustrap\n"),
        (LOCAL + "127.0.1.1\told\t# gpustrap\n", "n1", LOCAL + "127.0.1.1\tn1\t# gpustrap\n"),
        (LOCAL + "127.0.1.1\told\t# gpustrap\n10.0.0.5 n1\n", "n1", LOCAL + "10.0.0.5 n1\n"),
        (LOCAL + "127.0.1.1 mine", "n1", LOCAL + "127.0.1.1 mine\n127.0.1.1\tn1\t# gpustrap\n"),
    ],
)
def test_own_name_resolves_once_and_nothing_else_changes(hosts, name, wanted):
    assert host.hosts_with(hosts, name) == wanted
    assert host.hosts_with(wanted, name) == wanted


def test_name_is_set_once(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text(LOCAL)
    (tmp_path / "etc/hostname").write_text("old\n")
    running = ["old"]
    arguments = {"root": str(tmp_path), "get": lambda: running[-1], "set_name": running.append}
    assert host.name_node("n1", True, **arguments)["changed"]
    assert running == ["old"]
    result = host.name_node("n1", False, **arguments)
    assert result["claims"] == [{"kind": "file", "name": "/etc/hostname"}]
    assert running == ["old", "n1"]
    assert (tmp_path / "etc/hostname").read_text() == "n1\n"
    assert not host.name_node("n1", False, **arguments)["changed"]


def test_without_a_name_the_own_one_is_kept_and_not_claimed(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text(LOCAL)
    result = host.name_node("", False, root=str(tmp_path), get=lambda: "mine", set_name=pytest.fail)
    assert result["claims"] == []
    assert "127.0.1.1\tmine" in (tmp_path / "etc/hosts").read_text()


def test_write_keeps_the_mode_and_survives_a_mount(tmp_path, monkeypatch):
    target = tmp_path / "hosts"
    target.write_text("old")
    target.chmod(0o640)
    host.write_text(str(target), "new")
    assert target.stat().st_mode & 0o777 == 0o640

    def busy(_old, _new):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "rename", busy)
    host.write_text(str(target), "newer")
    assert target.read_text() == "newer"
    assert [path.name for path in tmp_path.iterdir()] == ["hosts"]


@pytest.fixture
def zones(tmp_path: Path) -> str:
    for zone in ("Etc/UTC", "Europe/Berlin"):
        path = tmp_path / "usr/share/zoneinfo" / zone
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/localtime").symlink_to("/usr/share/zoneinfo/Etc/UTC")
    return str(tmp_path)


def test_time_zone_is_set_once(zones):
    text = Path(zones, "etc/timezone")
    text.write_text("Etc/UTC\n")
    assert host.set_timezone("Europe/Berlin", True, zones)["changed"]
    assert text.read_text() == "Etc/UTC\n"
    assert host.set_timezone("Europe/Berlin", False, zones)["changed"]
    assert str(Path(zones, "etc/localtime").readlink()) == "/usr/share/zoneinfo/Europe/Berlin"
    assert text.read_text() == "Europe/Berlin\n"
    assert not host.set_timezone("Europe/Berlin", False, zones)["changed"]


def test_unknown_time_zone_has_a_suggestion(zones):
    with pytest.raises(host.HostError, match="no time zone Europe/Berlinn; did you mean Europe/Berlin"):
        host.set_timezone("Europe/Berlinn", True, zones)


def test_no_time_zones_at_all_says_what_to_install(tmp_path):
    (tmp_path / "etc").mkdir()
    assert host.set_timezone("Europe/Berlin", True, str(tmp_path))["changed"]
    with pytest.raises(host.HostError, match="tzdata"):
        host.set_timezone("Europe/Berlin", False, str(tmp_path))


class Systemd:
    """One unit; ``starts`` says what becomes of it when it is started."""

    def __init__(
        self, *, load="loaded", file="enabled", active="inactive", starts="active", condition="yes", tried="0"
    ):
        self.load, self.file, self.active, self.starts = load, file, active, starts
        self.condition, self.tried = condition, "0"
        self.acts: list[str] = []

    def __call__(self, words):
        if words[0] == "show":
            return 0, (
                f"LoadState={self.load}\nUnitFileState={self.file}\nActiveState={self.active}\n"
                f"ConditionResult={self.condition if self.tried != '0' else 'no'}\n"
                f"ConditionTimestampMonotonic={self.tried}\n"
            )
        if words[0] == "cat":
            return 0, "[Unit]\nConditionVirtualization=!container\n[Service]\n"
        self.acts.append(words[0])
        if words[0] == "enable":
            self.file = "enabled"
        if words[0] == "start":
            self.tried, self.active = "5", self.active if self.condition == "no" else self.starts
        return 0, ""


def test_unit_is_enabled_and_started_once():
    systemd = Systemd(file="disabled")
    assert host.run_unit("x", systemd, False)["changed"]
    assert systemd.acts == ["enable", "start"]
    result = host.run_unit("x", systemd, False)
    assert (result["changed"], result["claims"]) == (False, [{"kind": "unit", "name": "x.service"}])
    assert systemd.acts == ["enable", "start"]


def test_unit_held_back_is_no_change_and_says_why():
    systemd = Systemd(condition="no")
    result = host.run_unit("x", systemd, False)
    assert (result["changed"], result["held_back"]) == (False, ["ConditionVirtualization=!container"])
    assert not host.run_unit("x", systemd, True)["changed"]


def test_unit_that_dies_is_an_error():
    with pytest.raises(host.HostError, match="was started and is failed"):
        host.run_unit("x", Systemd(starts="failed"), False)


def test_unit_in_check_mode():
    systemd = Systemd(file="disabled")
    assert host.run_unit("x", systemd, True)["changed"]
    assert systemd.acts == []
    assert host.run_unit("x", Systemd(load="not-found"), True)["changed"]
    with pytest.raises(host.HostError, match=r"no usable unit x.service \(not-found\)"):
        host.run_unit("x", Systemd(load="not-found"), False)
    with pytest.raises(host.HostError, match="masked"):
        host.run_unit("x", Systemd(load="masked"), True)
