"""Modules of role docker: obstacles, merged daemon.json, units that run what is on disk."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

PACKAGES = [{"name": "docker.io", "version": "2"}]


@pytest.fixture
def preflight(run, tools, tmp_path):
    if not Path("/usr/bin/dpkg-query").exists():
        pytest.fail("this test needs dpkg, as does everything the docker role runs on")

    def call(installed="", check=False, **arguments):
        rows = "".join(f"ii \t{line.replace(' ', chr(9))}\n" for line in installed.splitlines())
        (tmp_path / "rows").write_text(rows)
        tools(**{"dpkg-query": f"cat {tmp_path}/rows", "apt-cache": "echo ' docker.io | 2 | http://x main'"})
        given = {"packages": PACKAGES, "minimum_free_mib": 1, "daemon_json": str(tmp_path / "daemon.json"), **arguments}
        no_docker = {"SNAP_PATHS": (str(tmp_path / "snap"),), "BY_HAND": ()}
        return run("gpustrap_docker_preflight", check=check, patch=no_docker, **given)

    return call


def test_preflight_says_what_to_install(preflight):
    result = preflight()
    assert result["install"] == ["docker.io=2"]
    assert result["claims"] == [{"kind": "package", "name": "docker.io"}]
    assert preflight("docker.io 2")["install"] == []
    assert not preflight("docker.io 2")["changed"]


def test_preflight_collects_all_problems(preflight, tmp_path):
    (tmp_path / "snap").touch()
    (tmp_path / "daemon.json").write_text("{")
    result = preflight(
        "docker.io 3\npodman-docker 4", conflicting_packages=["podman-docker"], users=["nobody-of-that-name"]
    )
    for said in (
        "gpustrap_docker_replace_snap",
        "in the way: podman-docker 4",
        "docker.io 3 is newer than the planned 2; run gpustrap plan --upgrade NODE, then apply",
        "no user nobody-of-that-name",
        "daemon.json is not valid JSON: line 1, column 2",
    ):
        assert said in result["msg"]
    assert result["failed"]


def test_preflight_snap_may_be_replaced(preflight, tmp_path):
    (tmp_path / "snap").touch()
    assert preflight(replace_snap=True)["snap"] is True


def test_preflight_removed_packages_are_not_in_the_way(preflight):
    assert "failed" not in preflight(conflicting_packages=["docker-ce"])


def test_preflight_no_space(preflight):
    assert "MiB free" in preflight(minimum_free_mib=1 << 40)["msg"]
    assert "failed" not in preflight("docker.io 2", minimum_free_mib=1 << 40)


DOCKERD = 'echo "$@" >>"$0.log"; eval "file=\\${$#}"; ! grep -q forbidden "$file" || { echo "bad $file" >&2; exit 1; }'
SYSTEMCTL = 'echo "ExecStart={ path=/usr/bin/dockerd ; argv[]=dockerd -H fd:// \\$OPTS ; ignore_errors=no ; }"'


@pytest.fixture
def daemon_json(tools, tmp_path):
    tools(dockerd=DOCKERD, systemctl=SYSTEMCTL)
    return tmp_path / "docker" / "daemon.json"


def test_daemon_merges_keeps_a_backup_and_mode(run, daemon_json):
    daemon_json.parent.mkdir()
    daemon_json.write_text('{"data-root": "/data"}')
    daemon_json.chmod(0o640)
    keys = {"log-opts": {"max-size": "50m"}}
    result = run("gpustrap_docker_daemon", path=str(daemon_json), keys=keys)
    assert result["changed"]
    assert json.loads(daemon_json.read_text()) == {"data-root": "/data", **keys}
    assert daemon_json.stat().st_mode & 0o777 == 0o640
    assert Path(result["backup"]).read_text() == '{"data-root": "/data"}'
    name = f"{daemon_json}#/log-opts/max-size"
    assert result["claims"] == [{"kind": "key", "name": name}]
    again = run("gpustrap_docker_daemon", path=str(daemon_json), keys=keys)
    assert not again["changed"]
    assert again["claims"] == result["claims"]
    assert len(list(daemon_json.parent.iterdir())) == 2


def test_daemon_is_asked_with_the_units_own_options(run, daemon_json, tmp_path):
    run("gpustrap_docker_daemon", path=str(daemon_json), keys={"debug": True})
    assert (tmp_path / "bin/dockerd.log").read_text().startswith("-H fd:// --validate --config-file ")
    assert daemon_json.stat().st_mode & 0o777 == 0o644


OLD_DOCKERD = """case "$*" in *--validate*) echo 'unknown flag: --validate' >&2; exit 125 ;; esac
while [ "$1" != --pidfile ]; do shift; done
grep -q forbidden "$4" && { echo "bad $4" >&2; exit 1; }
kill -0 "$(cat "$2")" && echo "failed to start daemon: pid file found" >&2
exit 1"""


def test_daemon_before_docker_23_is_asked_too(run, tools, daemon_json):
    tools(dockerd=OLD_DOCKERD)
    assert run("gpustrap_docker_daemon", path=str(daemon_json), keys={"debug": True})["changed"]
    result = run("gpustrap_docker_daemon", path=str(daemon_json), keys={"a": "forbidden"})
    assert f"bad {daemon_json}" in result["msg"]
    assert json.loads(daemon_json.read_text()) == {"debug": True}


def test_daemon_refused_by_docker_leaves_everything(run, daemon_json):
    daemon_json.parent.mkdir()
    daemon_json.write_text('{"a": "forbidden"}')
    result = run("gpustrap_docker_daemon", path=str(daemon_json), keys={"debug": True})
    assert result["failed"]
    assert f"bad {daemon_json}" in result["msg"]
    assert [(p.name, p.read_text()) for p in daemon_json.parent.iterdir()] == [("daemon.json", '{"a": "forbidden"}')]


@pytest.mark.parametrize("check", [False, True])
def test_daemon_invalid_json_is_left_alone(run, daemon_json, check):
    daemon_json.parent.mkdir()
    daemon_json.write_bytes(b'{\r\n  "debug": true,,\r\n}')
    result = run("gpustrap_docker_daemon", check=check, path=str(daemon_json), keys={"debug": True})
    assert result["failed"]
    assert f"{daemon_json} is not valid JSON: line 2, column" in result["msg"]
    assert [(p.name, p.read_bytes()) for p in daemon_json.parent.iterdir()] == [
        ("daemon.json", b'{\r\n  "debug": true,,\r\n}')
    ]


def test_daemon_check_mode_writes_nothing(run, daemon_json):
    result = run("gpustrap_docker_daemon", check=True, path=str(daemon_json), keys={"debug": True})
    assert result["changed"]
    assert not daemon_json.parent.exists()


def test_daemon_follows_a_link_and_tells_true_from_one(run, daemon_json, tmp_path):
    daemon_json.parent.mkdir()
    (tmp_path / "real.json").write_text('{"experimental": 1}')
    daemon_json.symlink_to(tmp_path / "real.json")
    assert run("gpustrap_docker_daemon", path=str(daemon_json), keys={"experimental": True})["changed"]
    assert daemon_json.is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == {"experimental": True}


UNIT = """case $1 in
show) printf '%s\\n' {state} NeedDaemonReload=no ;;
*) echo "$@" >>"$0.log" ;;
esac"""


@pytest.fixture
def service(run, tools, tmp_path):
    def call(load="loaded", active="active", enabled="enabled", age=60.0, check=False, **unit):
        start = int((time.monotonic() - age) * 1e6)
        state = f"LoadState={load} ActiveState={active} UnitFileState={enabled}"
        tools(systemctl=UNIT.format(state=f"{state} ExecMainStartTimestampMonotonic={start}"))
        result = run("gpustrap_service", check=check, units=[{"name": "x.service", **unit}])
        log = tmp_path / "bin/systemctl.log"
        return result, log.read_text().splitlines() if log.exists() else []

    return call


def test_service_in_order_is_left_alone(service, tmp_path):
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", (time.time() - 3600, time.time() - 3600))
    result, done = service(files=[str(tmp_path / "old"), "/no/such/file"])
    assert not result["changed"]
    assert done == []
    assert result["claims"] == [{"kind": "unit", "name": "x.service"}]


def test_service_older_than_its_configuration_is_restarted(service, tmp_path):
    (tmp_path / "new").touch()
    assert service(files=[str(tmp_path / "new")])[1] == ["restart x.service"]


def test_service_older_than_its_program_is_restarted(service, tmp_path):
    (tmp_path / "program").touch()
    os.utime(tmp_path / "program", (0, 0))  # packages keep the time of their build
    assert service(programs=[str(tmp_path / "program")])[1] == ["restart x.service"]


def test_service_is_enabled_and_started(service):
    assert service(active="inactive", enabled="disabled")[1] == ["enable x.service", "start x.service"]


def test_service_check_mode_only_tells(service):
    result, done = service(active="failed", enabled="disabled", check=True)
    assert result["actions"] == ["enable x.service", "start x.service"]
    assert done == []


def test_service_masked_is_a_stop(service):
    result, done = service(load="masked")
    assert "systemctl unmask x.service" in result["msg"]
    assert done == []
