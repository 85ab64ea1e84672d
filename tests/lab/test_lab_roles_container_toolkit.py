"""Role nvidia_container_toolkit on a real node with simulated GPUs: containers have them, and keep them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

PACKAGES = (
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
)
OURS = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}, "features": {"cdi": True}}
THEIRS = {"labels": ["mine=1"], "runtimes": {"mine": {"path": "/usr/sbin/runc"}}, "features": {"buildkit": True}}
RUN = "docker run --rm --network none -v /usr:/usr:ro"
KEPT = "docker run -d --name kept --network none -v /usr:/usr:ro"


def image() -> bytes:
    """A root of links into /usr, which is the node's own."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(link)
        for name in ("usr", "etc", "tmp"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(directory)
    return stream.getvalue()


@pytest.fixture(scope="module")
def toolkit(lab, make_target) -> Iterator[Any]:
    """Debian 13 with a loaded driver, the distribution's docker and the toolkit, over a daemon.json of the user's."""
    standins = lab.standins()
    made = make_target("toolkit", "debian13", gpus="4x-rtx3090:595")
    made.sh("mkdir /etc/docker && cat >/etc/docker/daemon.json", stdin=json.dumps(THEIRS).encode())
    made.sh("apt-get -qq update")
    rows = [line.split("|") for line in made.sh("apt-cache madison docker.io docker-cli").splitlines()]
    newest = {name.strip(): version.strip() for name, version, _where in reversed(rows)}
    base = standins["gpustrap_container_toolkit_repository"]
    made.variables |= {
        "gpustrap_roles": ["docker", "nvidia_container_toolkit"],
        "docker_packages": [{"name": name, "version": version} for name, version in newest.items()],
        "docker_daemon": {"log-driver": "json-file"},
        "nvidia_container_toolkit_packages": [{"name": name, "version": "1.20.0-1"} for name in PACKAGES],
        "nvidia_container_toolkit_repository": {
            "uri": f"{base}/stable/deb/amd64",
            "suite": "/",
            "components": [],
            "architectures": ["amd64"],
        },
        "nvidia_container_toolkit_key": {
            "url": f"{base}/gpgkey",
            "fingerprints": standins["gpustrap_container_toolkit_key_fingerprints"],
        },
        "nvidia_container_toolkit_docker_cdi_feature": True,
        "nvidia_container_toolkit_podman_min": "5.1",
    }
    made.seen["check"] = made.play("--check", "--tags=nvidia_container_toolkit")
    made.seen["after_check"] = made.sh(
        "ls /usr/bin/nvidia-ctk /etc/udev/rules.d/* /etc/apt/keyrings/* 2>/dev/null || true"
    )
    made.seen["first"] = made.play()
    made.sh("docker import - own", stdin=image())
    yield made
    lab.remove("toolkit")


def test_check_mode_on_a_bare_node(toolkit):
    assert toolkit.seen["check"].rc == 0, toolkit.seen["check"].text
    assert "would follow" in toolkit.seen["check"].text
    assert toolkit.seen["after_check"] == ""


def test_container_nvml_unknown_gpus_stay_after_a_reload(toolkit):
    assert toolkit.seen["first"].rc == 0, toolkit.seen["first"].text
    toolkit.sh(f"{KEPT} --device nvidia.com/gpu=all own sleep infinity")
    try:
        before = toolkit.sh("docker exec kept nvidia-smi -L").splitlines()
        assert len(before) == 4
        toolkit.sh("systemctl daemon-reload")
        assert toolkit.sh("docker exec kept nvidia-smi -L").splitlines() == before
        toolkit.sh("docker exec kept test -c /dev/nvidia0 -a -c /dev/nvidiactl")
    finally:
        toolkit.sh("docker rm -f kept")
    again = toolkit.play()
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text


def test_docker_no_gpu_driver_runtime_is_known_by_name(toolkit):
    assert "nvidia" in json.loads(toolkit.sh("docker info --format '{{json .Runtimes}}'"))
    told = toolkit.sh(f"{RUN} --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all own nvidia-smi -L")
    assert len(told.splitlines()) == 4
    [one] = toolkit.sh(f"{RUN} --device nvidia.com/gpu=0 own sh -c 'ls /dev/nvidia?'").splitlines()
    assert one == "/dev/nvidia0"


def test_daemon_json_clobber(toolkit):
    found = json.loads(toolkit.sh("cat /etc/docker/daemon.json"))
    assert found["labels"] == THEIRS["labels"]
    assert found["runtimes"] == {**THEIRS["runtimes"], **OURS["runtimes"]}
    assert found["features"] == {**THEIRS["features"], **OURS["features"]}


def test_links_in_dev_char_and_the_rule_that_renews_them(toolkit):
    assert toolkit.sh("readlink /dev/char/*").splitlines().count("/dev/nvidia0") == 1
    assert "create-dev-char-symlinks --create-all" in toolkit.sh("cat /etc/udev/rules.d/71-nvidia-dev-char.rules")


@pytest.mark.slow
def test_cdi_stale_after_a_reboot_containers_that_restart_have_gpus(toolkit, lab):
    """By NVIDIA's runtime: docker before 28.2 knows CDI too late for it (moby/moby#49989)."""
    toolkit.sh(f"{KEPT} --restart always --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all own sleep infinity")
    lab.reboot("toolkit")
    assert len(toolkit.sh("docker exec kept nvidia-smi -L").splitlines()) == 4
    toolkit.sh("docker rm -f kept")
    again = toolkit.play()
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text


@pytest.mark.slow
def test_cdi_stale_leftovers_and_a_wrong_specification_are_mended(toolkit):
    toolkit.sh("mkdir -p /etc/cdi && cp /var/run/cdi/nvidia.yaml /etc/cdi/nvidia.yaml")
    toolkit.sh("sed -i s,libnvidia-ml.so.1,libcuda.so.535.129.03, /var/run/cdi/nvidia.yaml")
    toolkit.sh("sed -i 's/#no-cgroups = false/no-cgroups = true/' /etc/nvidia-container-runtime/config.toml")
    mended = toolkit.play("--tags=nvidia_container_toolkit", "-v")
    assert mended.rc == 0, mended.text
    assert "removed /etc/cdi/nvidia.yaml" in mended.text
    assert "it is of driver 535.129.03" in mended.text
    assert "no-cgroups = true, for rootless containers, is false again" in mended.text
    assert len(toolkit.sh(f"{RUN} --device nvidia.com/gpu=all own nvidia-smi -L").splitlines()) == 4
    again = toolkit.play()
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text


@pytest.mark.slow
def test_toolkit_1_18_cdi_default_all_packages_move_together(toolkit):
    older = [{"name": name, "version": "1.19.1-1"} for name in PACKAGES]
    moved = toolkit.play("--tags=nvidia_container_toolkit", nvidia_container_toolkit_packages=older)
    assert moved.rc == 0, moved.text
    assert set(toolkit.sh("dpkg-query -W -f '${Version}\\n' " + " ".join(PACKAGES)).split()) == {"1.19.1-1"}
    mixed = [{**older[0], "version": "1.20.0-1"}, *older[1:]]
    assert toolkit.play("--tags=nvidia_container_toolkit", nvidia_container_toolkit_packages=mixed).rc == 2
    assert toolkit.play("--tags=nvidia_container_toolkit").rc == 0


@pytest.mark.slow
def test_kubernetes_containerd_is_merged_only_when_asked_for(toolkit):
    """NVIDIA/aicr#1237: containerd refused the file that toolkit 1.19.1 put beside its settings."""
    assert toolkit.sh("ls /etc/containerd/conf.d 2>/dev/null || true") == ""
    before = toolkit.sh("cat /etc/containerd/config.toml 2>/dev/null || true")
    merged = toolkit.play("--tags=nvidia_container_toolkit", nvidia_container_toolkit_containerd=True)
    assert merged.rc == 0, merged.text
    dump = toolkit.sh("containerd config dump")
    assert "nvidia-container-runtime" in dump
    assert before in toolkit.sh("cat /etc/containerd/config.toml")
    assert len(toolkit.sh(f"{RUN} --device nvidia.com/gpu=all own nvidia-smi -L").splitlines()) == 4
    again = toolkit.play(nvidia_container_toolkit_containerd=True)
    assert (again.rc, again.counts["changed"]) == (0, 0), again.text
