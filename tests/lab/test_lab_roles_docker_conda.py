"""Roles docker and conda on real nodes: what is the node's stays, and a second run changes nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytestmark = pytest.mark.slow

POOL = {"base": "10.213.0.0/16", "size": 24}
DAEMON = {"log-driver": "json-file", "log-opts": {"max-size": "50m", "max-file": "3"}, "default-address-pools": [POOL]}
FOUND = b'\xef\xbb\xbf{"labels": ["mine=1"],\r\n "log-opts": {"tag": "{{.Name}}"}}\r\n'
UPSTREAM = {
    "docker-ce": "5:29.7.2-1",
    "docker-ce-cli": "5:29.7.2-1",
    "containerd.io": "2.3.3-1",
    "docker-buildx-plugin": "0.36.1-1",
    "docker-compose-plugin": "5.4.0-1",
}


@pytest.fixture(scope="module")
def distribution(make_target) -> Any:
    """Debian 13 with the distribution's docker, over a daemon.json of the user's."""
    made = make_target("roles-d", "debian13")
    made.sh("apt-get -qq update")
    rows = [line.split("|") for line in made.sh("apt-cache madison docker.io docker-cli").splitlines()]
    newest = {name.strip(): version.strip() for name, version, _where in reversed(rows)}
    made.variables |= {
        "gpustrap_roles": ["docker"],
        "docker_packages": [{"name": name, "version": version} for name, version in newest.items()],
        "docker_conflicting_packages": ["docker-ce", "podman-docker"],
        "docker_daemon": DAEMON,
        "docker_address_pools": [POOL],
        "docker_users": [],
    }
    made.seen["check"] = made.play("--check", "--diff")
    made.seen["after_check"] = made.sh("ls -d /etc/docker /usr/sbin/dockerd 2>/dev/null || true")
    made.sh("mkdir /etc/docker && cat >/etc/docker/daemon.json", stdin=FOUND)
    made.seen["first"] = made.play()
    return made


def running(there: Any) -> str:
    return there.sh("systemctl show docker --property=MainPID,ActiveState")


def test_check_mode_on_a_bare_node(distribution):
    assert distribution.seen["check"].rc == 0, distribution.seen["check"].text
    assert "would follow: install docker-cli=" in distribution.seen["check"].text
    assert distribution.seen["check"].counts["changed"] == 1
    assert distribution.seen["after_check"] == ""


def test_docker_starts_once_with_its_settings(distribution):
    assert distribution.seen["first"].rc == 0, distribution.seen["first"].text
    assert "ActiveState=active" in running(distribution)
    assert distribution.sh("systemctl is-enabled docker") == "enabled"
    assert distribution.sh("journalctl -u docker -o cat --no-pager | grep -c '^Starting '") == "1"
    assert distribution.sh("ip -4 -o addr show docker0").split()[3].startswith("10.213.")
    assert distribution.sh("ls /usr/sbin/policy-rc.d", rc=2) == ""


def test_existing_keys_are_kept_with_a_backup(distribution):
    found = json.loads(distribution.sh("cat /etc/docker/daemon.json"))
    assert found == {**DAEMON, "labels": ["mine=1"], "log-opts": {"tag": "{{.Name}}", **DAEMON["log-opts"]}}
    backup = distribution.node.exec("cat /etc/docker/daemon.json.*~").stdout
    assert json.loads(backup.lstrip("\ufeff")) == {"labels": ["mine=1"], "log-opts": {"tag": "{{.Name}}"}}


def test_second_run_changes_nothing(distribution):
    before = running(distribution)
    again = distribution.play()
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text
    assert running(distribution) == before


def test_invalid_daemon_json_stops_with_its_place_and_loses_nothing(distribution):
    good, before = distribution.sh("cat /etc/docker/daemon.json"), running(distribution)
    broken = b'{\n  "labels": ["mine=1"]\n  "debug": true\n}\n'
    distribution.sh("cat >/etc/docker/daemon.json", stdin=broken)
    listing = distribution.sh("ls -l /etc/docker")
    try:
        stopped = distribution.play()
        assert stopped.rc == 2
        assert "/etc/docker/daemon.json is not valid JSON: line 3, column 3" in stopped.text
        assert distribution.sh("cat /etc/docker/daemon.json").encode() + b"\n" == broken
        assert distribution.sh("ls -l /etc/docker") == listing
        assert running(distribution) == before
    finally:
        distribution.sh("cat >/etc/docker/daemon.json", stdin=good.encode())


def test_setting_docker_refuses_is_not_written(distribution):
    good, before = distribution.sh("cat /etc/docker/daemon.json"), running(distribution)
    refused = distribution.play(docker_daemon={**DAEMON, "hosts": ["tcp://127.0.0.1:2375"]})
    assert refused.rc == 2
    assert "specified both as a flag and in the configuration file: hosts" in refused.text
    assert distribution.sh("cat /etc/docker/daemon.json") == good
    assert running(distribution) == before


def test_changed_setting_restarts_docker_also_after_an_interruption(distribution):
    before = running(distribution)
    stopped = distribution.play(docker_daemon={**DAEMON, "debug": True}, docker_users=["nobody-of-that-name"])
    assert "no user nobody-of-that-name" in stopped.text
    assert running(distribution) == before
    # what a run leaves that was killed between writing and restarting
    distribution.sh('sed -i \'s/"50m"/"40m"/\' /etc/docker/daemon.json')
    distribution.play(docker_daemon={**DAEMON, "log-opts": {"max-size": "40m"}})
    assert running(distribution) != before
    again = distribution.play()
    assert again.rc == 0, again.text


def test_other_origin_is_refused_and_removes_nothing(distribution):
    refused = distribution.play(docker_conflicting_packages=["docker.io"])
    assert "in the way: docker.io" in refused.text
    assert "apt-get remove docker.io" in refused.text
    assert "ActiveState=active" in running(distribution)


@pytest.fixture(scope="module")
def upstream(lab, make_target) -> Any:
    """Debian 12 with docker's own repository and Miniforge, both stand-ins, over a repository entry of the user's."""
    standins = lab.standins()
    made = make_target("roles-u", "debian12")
    uri = f"{standins['gpustrap_docker_repository']}/linux/debian"
    made.variables |= {
        "gpustrap_roles": ["docker", "conda"],
        "docker_origin": "upstream",
        "docker_packages": [{"name": n, "version": f"{v}~debian.12~bookworm"} for n, v in UPSTREAM.items()],
        "docker_conflicting_packages": ["docker.io", "containerd", "runc", "podman-docker"],
        "docker_repository": {"uri": uri, "suite": "bookworm", "components": ["stable"], "architectures": ["amd64"]},
        "docker_key": {"url": f"{uri}/gpg", "fingerprints": standins["gpustrap_docker_key_fingerprints"]},
        "docker_daemon": DAEMON,
        "docker_address_pools": [POOL],
        "docker_users": [made.node.user],
        "conda_version": standins["gpustrap_conda_version"],
        "conda_installer_url": standins["gpustrap_conda_installer_url"],
        "conda_installer_sha256": standins["gpustrap_conda_installer_sha256"],
        "conda_channels": standins["gpustrap_conda_channels"],
    }
    made.sh(f"echo 'deb [trusted=yes] {uri}/ bookworm stable' >/etc/apt/sources.list.d/docker.list")
    made.sh("sha256sum /root/.bashrc /home/ubuntu/.bashrc /etc/profile >/root/shells 2>/dev/null || true")
    made.seen["check"] = made.play("--check")
    wrong = dict(made.variables["docker_key"], fingerprints=["A" * 40])
    made.seen["wrong_key"] = made.play("--tags=docker", docker_key=wrong)
    made.seen["after_wrong_key"] = made.sh("ls /etc/apt/sources.list.d /etc/apt/keyrings 2>/dev/null || true")
    made.seen["first"] = made.play()
    return made


def test_upstream_check_mode_on_a_bare_node(upstream):
    assert upstream.seen["check"].rc == 0, upstream.seen["check"].text
    assert "would follow: install containerd.io=2.3.3-1~debian.12~bookworm" in upstream.seen["check"].text


def test_wrong_key_is_refused_before_apt_sees_it(upstream):
    assert upstream.seen["wrong_key"].rc == 2
    assert "was refused: holds" in upstream.seen["wrong_key"].text
    assert "gpustrap" not in upstream.seen["after_wrong_key"]


def test_upstream_docker_runs_and_its_repository_is_the_only_entry(upstream):
    assert upstream.seen["first"].rc == 0, upstream.seen["first"].text
    assert upstream.sh("docker version --format '{{.Server.Os}}'", user=upstream.node.user) == "linux"
    assert upstream.sh("cat /etc/apt/sources.list.d/docker.list").startswith(
        "# replaced by gpustrap: deb [trusted=yes]"
    )
    assert upstream.sh("cat /etc/apt/sources.list.d/docker.list.*~").startswith("deb [trusted=yes]")
    assert "Conflicting" not in upstream.sh("apt-get update 2>&1")
    policy = upstream.sh("apt-cache policy docker-ce")
    assert "Candidate: 5:29.7.2-1~debian.12~bookworm" in policy
    assert "1001" in policy


def test_upstream_second_run_changes_nothing(upstream):
    again = upstream.play()
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text


def test_conda_makes_an_environment_for_an_ordinary_user(upstream):
    upstream.sh("/opt/conda/bin/conda create -y -q -n t hello", user=upstream.node.user)
    assert "simulated" in upstream.sh("/opt/conda/bin/conda run -n t hello", user=upstream.node.user)
    upstream.sh("/opt/conda/bin/conda env remove -y -n t", user=upstream.node.user)


def test_conda_touches_no_shell(upstream):
    upstream.sh("sha256sum --quiet --check /root/shells")
    assert upstream.sh("ls /etc/profile.d | grep -c conda", rc=1) == "0"


def test_conda_half_made_is_made_anew(upstream):
    upstream.sh("rm /opt/conda/.gpustrap-installer.json; echo '{\"fresh\": true}' >/opt/conda.gpustrap-installing")
    upstream.sh("rm -r /opt/conda/bin; touch /opt/conda/half")
    again = upstream.play("--tags=conda")
    assert again.rc == 0, again.text
    assert upstream.sh("ls /opt/conda.gpustrap-installing", rc=2) == ""
    assert upstream.sh("ls /opt/conda/half", rc=2) == ""
    assert upstream.sh("/opt/conda/bin/conda --version").startswith("conda ")


def test_conda_disk_full_stops_before_anything(upstream):
    upstream.sh("mkdir -p /srv/conda && mount -t tmpfs -o size=20m tmpfs /srv/conda")
    try:
        stopped = upstream.play("--tags=conda", conda_prefix="/srv/conda")
        assert stopped.rc == 2
        assert re.search(r"/srv/conda: \d+ MiB free, 1024 needed", stopped.text)
        assert upstream.sh("ls -A /srv/conda") == ""
    finally:
        upstream.sh("umount /srv/conda")


def test_conda_foreign_prefix_is_refused(upstream):
    upstream.sh("mkdir -p /srv/mine/bin && touch /srv/mine/bin/conda")
    refused = upstream.play("--tags=conda", conda_prefix="/srv/mine")
    assert "/srv/mine is there and gpustrap did not make it" in refused.text
    assert upstream.sh("ls -A /srv/mine") == "bin"


def test_miniconda_needs_its_terms_accepted(upstream):
    refused = upstream.play("--tags=conda", conda_distribution="miniconda", conda_prefix="/srv/other")
    assert "anaconda.com/legal" in refused.text
    assert upstream.sh("ls /srv/other", rc=2) == ""
