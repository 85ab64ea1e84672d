"""How a node's container is run: what it may do, and what of this machine it never gets."""

from __future__ import annotations

from pathlib import Path

from gpustrap.lab import network
from gpustrap.lab.engine import LABEL_ADDRESS, LABEL_LAB, LABEL_NODE, LABEL_OS
from gpustrap.lab.images import file_text

# What systemd, sshd and docker in the node need. Not here, on purpose: SYS_MODULE, SYS_TIME, SYS_RAWIO,
# SYS_BOOT, SYS_RESOURCE, MAC_ADMIN and MAC_OVERRIDE, which reach through to this machine.
CAPABILITIES = (
    "AUDIT_CONTROL",
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
    "SYS_CHROOT",
    "SYS_NICE",
    "SYS_PTRACE",
    "SYSLOG",
)
# /dev/console for docker's runtime, /dev/net/tun for its networks. MKNOD alone opens no device.
DEVICE_RULES = ("c 5:1 rwm", "c 10:200 rwm")


def name(lab: str, node: str) -> str:
    """The container's name for the engine."""
    return f"gpustrap-{lab}-{node}"


def volume(lab: str, node: str) -> str:
    """The volume that holds the node's ``/var/lib/docker``."""
    return f"{name(lab, node)}-docker"


def node_arguments(
    lab: str, node: str, os_name: str, address: str, image: str, gpus: Path | None = None
) -> tuple[str, ...]:
    """Arguments of ``podman run`` for a node; ``gpus`` is the directory of its simulated GPUs."""
    return (
        "run",
        "--detach",
        f"--name={name(lab, node)}",
        f"--hostname={node}",
        f"--label={LABEL_LAB}={lab}",
        f"--label={LABEL_NODE}={node}",
        f"--label={LABEL_OS}={os_name}",
        f"--label={LABEL_ADDRESS}={address}",
        f"--network={network.name(lab)}",
        f"--ip={address}",
        # The same at every start: this machine's neighbour table would send to the one before for half a minute.
        f"--mac-address={network.mac(address)}",
        f"--network-alias={node}",
        "--systemd=always",
        "--restart=always",  # `systemctl reboot` ends the container; it must come back
        "--cgroupns=private",
        "--security-opt=seccomp=unconfined",
        "--security-opt=apparmor=unconfined",
        "--security-opt=unmask=/sys/fs/cgroup",
        "--cap-drop=all",
        f"--cap-add={','.join(CAPABILITIES)}",
        *(f"--device-cgroup-rule={rule}" for rule in DEVICE_RULES),
        "--sysctl=net.ipv4.ip_forward=1",
        f"--volume={volume(lab, node)}:/var/lib/docker",  # overlay2 does not work on overlay
        *((f"--volume={gpus}:/usr/lib/lab-gpu:ro",) if gpus else ()),
        image,
        "sh",
        "-c",
        file_text("entry.sh"),
        "entry",
        f"{lab}/{node}",
    )


def mirror_arguments(lab: str, address: str, directory: str, image: str) -> tuple[str, ...]:
    """Arguments of ``podman run`` for the HTTP server that shows nodes a directory of this machine, read-only."""
    return (
        "run",
        "--detach",
        f"--name={name(lab, 'mirror')}",
        f"--label={LABEL_LAB}={lab}",
        f"--label={LABEL_ADDRESS}={address}",
        f"--network={network.name(lab)}",
        f"--ip={address}",
        "--network-alias=mirror",
        "--restart=always",
        "--read-only",
        "--cap-drop=all",
        "--cap-add=NET_BIND_SERVICE,DAC_READ_SEARCH",  # the directory may be another user's alone
        f"--volume={directory}:/srv:ro",
        image,
        "python3",
        "-c",
        file_text("mirror.py"),
        "/srv",
        "",
        "80",
    )
