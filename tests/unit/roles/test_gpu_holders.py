"""Who uses the GPUs, read from a recorded tree, by names a person knows."""

from __future__ import annotations

import pytest

from gpustrap.ansible_plugins.module_utils.gpustrap_node.holders import holders, known
from gpustrap.ansible_plugins.module_utils.gpustrap_node.host import Host


@pytest.fixture
def machine(tmp_path):
    """``machine(pid, comm, opened, cgroup="", uid=1000, cmdline=None)`` adds a process."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    drm = tmp_path / "sys/class/drm"
    for card, vendor in (("card0", "0x1a03"), ("card1", "0x10de")):
        (drm / card / "device").mkdir(parents=True)
        (drm / card / "device/vendor").write_text(vendor + "\n")

    def add(pid, comm, opened, cgroup="", uid=1000, cmdline=None):
        here = tmp_path / "proc" / str(pid)
        (here / "fd").mkdir(parents=True)
        for number, target in enumerate(opened):
            (here / "fd" / str(number)).symlink_to(target)
        (here / "comm").write_text(comm + "\n")
        (here / "cmdline").write_bytes("\0".join(cmdline or [comm]).encode() + b"\0")
        (here / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (here / "cgroup").write_text(f"0::{cgroup}\n")
        return Host(str(tmp_path))

    return add


def test_process_is_named_with_user_and_command(machine):
    machine(12, "bash", ["/dev/pts/0"])
    host = machine(
        4711, "python3", ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"], cmdline=["python3", "train.py"]
    )
    [found] = holders(host)
    assert found.words == "4711 (alice: python3 train.py)"
    assert found.devices == ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")


def test_daemons_of_the_driver_are_no_users(machine):
    machine(800, "nvidia-persiste", ["/dev/nvidia0", "/dev/nvidiactl"], uid=0)
    assert holders(machine(801, "nv-hostengine", ["/dev/nvidia0"], uid=0)) == []


def test_display_attached_gpu_is_a_user_whichever_driver_it_has(machine):
    machine(900, "Xorg", ["/dev/dri/card0"], uid=0)  # the board's own graphics
    [found] = holders(machine(901, "Xorg", ["/dev/dri/card1"], uid=0))
    assert found.words == "901 (root: Xorg), the desktop"


def test_what_a_command_line_says_does_no_harm_on_a_terminal(machine):
    [found] = holders(machine(7, "evil", ["/dev/nvidia0"], cmdline=["evil", "\x1b[31m" + "x" * 500], uid=77))
    assert "\x1b" not in found.words
    assert len(found.words) < 100
    assert "(77:" in found.words


@pytest.mark.parametrize(
    ("cgroup", "said"),
    [
        ("/system.slice/docker-0123456789abcdef0123.scope", "docker container 0123456789ab"),
        ("/machine.slice/libpod-0123456789abcdef.scope/container", "podman container 0123456789ab"),
        ("/docker/0123456789abcdef", "docker container 0123456789ab"),
        ("/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", "Slurm job 42"),
        ("/slurm/uid_1000/job_42/step_batch", "Slurm job 42"),
        (
            "/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-containerd-0123456789abcdef.scope",
            "Kubernetes pod 01234567-89ab-cdef-0123-456789abcdef",
        ),
        ("/system.slice/ollama.service", "ollama.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service", "jupyter.service"),
        ("/user.slice/user-1000.slice/session-3.scope", ""),
    ],
)
def test_what_a_person_calls_it(cgroup, said):
    assert known(f"0::{cgroup}\n") == said
