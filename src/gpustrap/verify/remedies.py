"""The words of each next step. They live here and not on the node: what is shown as a command must be ours."""

from __future__ import annotations

from gpustrap.model.lock import NodeLock
from gpustrap.verify.gpustrap_verify.remedies import Remedy

TEXTS: dict[Remedy, str] = {
    Remedy.APPLY: "gpustrap apply {node}",
    Remedy.REBOOT: "gpustrap apply --reboot {node}",
    Remedy.UNMASK_DOCKER: "on the node: systemctl unmask docker.service; then gpustrap apply {node}",
    Remedy.CORRECT_DAEMON_JSON: "correct /etc/docker/daemon.json on the node; then gpustrap apply {node}",
    Remedy.DOCKER_LOG: "on the node: journalctl -u docker -n 50",
    Remedy.CONDA_BY_HAND: "on the node, as root: {conda}/bin/conda create -n test python",
    Remedy.MAKE_ROOM: "on the node: df -h; df -i; then make room",
    Remedy.REMOVE_LEFTOVERS: "on the node: rm -r /var/tmp/gpustrap-verify-*",
    Remedy.SYSTEMD_STATUS: "on the node: systemctl status",
    Remedy.FAILED_UNITS: "on the node: systemctl --failed",
    Remedy.WAIT: "wait, then gpustrap verify {node}",
    Remedy.SET_CLOCK: "on the node: timedatectl set-ntp true, or set the clock by hand",
}


def words(sent: object, name: str, lock: NodeLock) -> str:
    """The next step that a node named; none when it named none that we know.

    Args:
        sent: What the node sent: may be anything.
        name: Inventory name.
        lock: The node's entry of the lock.
    """
    known = {remedy.value: text for remedy, text in TEXTS.items()}
    text = known.get(sent, "") if isinstance(sent, str) else ""
    return text.format(node=name, conda=lock.roles.get("conda", {}).get("conda_prefix", "/opt/conda"))
