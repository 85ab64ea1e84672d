"""The next steps that a check may name. A node sends the name; the words are the controller's (`verify.remedies`)."""

from __future__ import annotations

from enum import Enum


class Remedy(Enum):
    """What to do next, by name: never a command of the node's choice on a person's screen."""

    APPLY = "apply"
    REBOOT = "reboot"
    UNMASK_DOCKER = "unmask-docker"
    CORRECT_DAEMON_JSON = "correct-daemon-json"
    DOCKER_LOG = "docker-log"
    CONDA_BY_HAND = "conda-by-hand"
    MAKE_ROOM = "make-room"
    REMOVE_LEFTOVERS = "remove-leftovers"
    SYSTEMD_STATUS = "systemd-status"
    FAILED_UNITS = "failed-units"
    WAIT = "wait"
    SET_CLOCK = "set-clock"
    PLAN_BUILD = "plan-build"
    OTHER_BUILD = "other-build"
    FABRIC = "fabric"
    OWN_LIBRARIES = "own-libraries"
    KERNEL_LOG = "kernel-log"
    BAD_GPU = "bad-gpu"
    UVM = "uvm"
    GPU_USERS = "gpu-users"
    MIG = "mig"
    NCCL = "nccl"
    DEVICE_FILES = "device-files"
    ENV_SHELL = "env-shell"
