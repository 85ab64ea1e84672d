"""What keeps a driver out: another one that no package owns, and people at work on the GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_driver_preflight import problems, problems_of_rpms
from gpustrap.ansible_plugins.module_utils.gpustrap_node import dpkg
from gpustrap.ansible_plugins.module_utils.gpustrap_node.driver_set import Wanted
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host

WANTED = Wanted("595", "open", "dkms", {"nvidia-kernel-open-dkms": "595.71.05-1"})
STATUS = "Package: nvidia-kernel-open-dkms\nStatus: install ok installed\nArchitecture: amd64\nVersion: {}\n"


@pytest.fixture
def look(tmp_path):
    """``look(version, *files, users="refuse")``: what is said of a node with that driver and these files."""

    def at(version="", *files, users="refuse"):
        for file in files:
            path = tmp_path / file.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        known = dpkg.parse_status(STATUS.format(version)) if version else {}
        return problems(Host(str(tmp_path)), known, WANTED, users)

    return at


@pytest.fixture
def busy(tmp_path):
    """A process that has a GPU open."""
    here = tmp_path / "proc/4711"
    (here / "fd").mkdir(parents=True)
    (here / "fd/3").symlink_to("/dev/nvidia0")
    (here / "comm").write_text("python3\n")
    (here / "cmdline").write_bytes(b"python3\0train.py\0")
    (here / "status").write_text("Uid:\t0\t0\t0\t0\n")
    (here / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_42/step_0\n")


def test_nothing_to_say_of_a_bare_node(look):
    assert look() == []


def test_runfile_leftover(look):
    [said] = look("", "/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-smi")
    assert "/usr/bin/nvidia-uninstall, /usr/bin/nvidia-smi" in said
    assert "sudo nvidia-uninstall" in said


def test_files_that_no_package_owns(look):
    [said] = look("", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.90.07")
    assert "no package owns: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.90.07" in said


def test_dkms_entry_without_package(look):
    [said] = look("595.71.05-1", "/var/lib/dkms/nvidia/550.90.07/source", "/var/lib/dkms/nvidia/595.71.05/source")
    assert said.endswith("sudo dkms remove nvidia/550.90.07 --all")


def test_module_in_use(look, busy):
    [said] = look("580.178.04-1")
    assert "4711 (0: python3 train.py), Slurm job 42" in said
    assert "gpustrap_gpu_users: allow" in said


def test_users_are_left_alone_where_nothing_changes_or_they_may_be_disrupted(look, busy):
    assert look("595.71.05-1") == []
    assert look("580.178.04-1", users="allow") == []


def test_module_in_use_on_the_rhel_family(tmp_path, busy):
    host, there = Host(str(tmp_path)), {"nvidia-kernel-open-dkms": "3:580.178.04-1.el9"}
    [said] = problems_of_rpms(host, there, WANTED, "refuse")
    assert "python3 train.py" in said
    assert problems_of_rpms(host, there, WANTED, "allow") == []
    assert problems_of_rpms(host, {"nvidia-kernel-open-dkms": "3:595.71.05-1.el9"}, WANTED, "refuse") == []


def test_runfile_leftover_on_the_rhel_family(tmp_path):
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-uninstall").touch()
    [said] = problems_of_rpms(Host(str(tmp_path)), {}, WANTED, "refuse")
    assert "sudo nvidia-uninstall" in said


@pytest.mark.parametrize(("version", "refused"), [("3:580.178.04-1.el9", True), ("3:595.71.05-1.el9", False)])
def test_module_takes_rpm_where_there_is_no_dpkg(run, tmp_path, busy, version, refused):
    rpm = SimpleNamespace(package_facts=lambda _host, names: {"kind": "dnf", "packages": dict.fromkeys(names, version)})
    patch = {"Host": lambda: Host(str(tmp_path)), "rpm": rpm}
    packages = [{"name": "nvidia-kernel-open-dkms", "version": "595.71.05-1"}]
    done = run("gpustrap_nvidia_preflight", patch=patch, packages=packages, branch="595", flavour="open", module="dkms")
    assert ("the GPUs are in use" in done.get("msg", "")) == refused
    assert done.get("failed", False) == refused
