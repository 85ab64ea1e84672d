"""Docker's snap, which several roles cannot work with. Standard library only."""

from __future__ import annotations

SNAP_PATHS = ("/snap/docker/current", "/var/snap/docker/current")
SNAP = (
    "docker's snap is installed; it sees neither /etc/docker nor the NVIDIA runtime. Set gpustrap_docker: false,"
    " or gpustrap_docker_replace_snap: true to remove it (snapd keeps a snapshot of containers and volumes, 31 days)"
)
