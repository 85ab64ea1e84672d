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
    Remedy.PLAN_BUILD: "gpustrap plan {node}, which takes a build that the driver runs, or a newer "
    "gpustrap_driver_branch; then gpustrap apply {node}",
    Remedy.OTHER_BUILD: "gpustrap plan --upgrade --only environments {node}; then gpustrap apply {node}",
    Remedy.FABRIC: "on the node: systemctl status nvidia-fabricmanager; journalctl -u nvidia-fabricmanager -n 50",
    Remedy.OWN_LIBRARIES: "take LD_LIBRARY_PATH, PYTHONPATH and the like out of the files named; then "
    "gpustrap verify {node}",
    Remedy.KERNEL_LOG: "on the node: journalctl -k -b | grep -i xid; a GPU that fails belongs out of the node",
    Remedy.BAD_GPU: "switch the node off and on, then gpustrap verify {node}; if the same GPU fails again, try another "
    "slot, riser and power cable, then replace the card",
    Remedy.UVM: "on the node: modprobe nvidia-uvm; if that does not help: gpustrap apply --reboot {node}",
    Remedy.GPU_USERS: "on the node: nvidia-smi; and again when those programs are done: gpustrap verify {node}",
    Remedy.MIG: "on the node: nvidia-smi mig -lgip, then make instances; or nvidia-smi -mig 0",
    Remedy.NCCL: "on the node: try it with NCCL_P2P_DISABLE=1; if that works, switch ACS and the IOMMU's translation "
    "off in the firmware (iommu=pt), see docs/environments.md",
    Remedy.DEVICE_FILES: "on the node: ls -l /dev/nvidia*; nvidia-smi -L",
    Remedy.ENV_SHELL: "gpustrap env shell {node} {environment}, and try it there",
}


def words(sent: object, name: str, lock: NodeLock, environment: str = "NAME") -> str:
    """The next step that a node named; none when it named none that we know.

    Args:
        sent: What the node sent: may be anything.
        name: Inventory name.
        lock: The node's entry of the lock.
        environment: The one that it is about.
    """
    known = {remedy.value: text for remedy, text in TEXTS.items()}
    text = known.get(sent, "") if isinstance(sent, str) else ""
    conda = lock.roles.get("conda", {}).get("conda_prefix", "/opt/conda")
    return text.format(node=name, conda=conda, environment=environment)
