"""Ansible module: can containers on this node get at its GPUs? Reads only; names every obstacle at once."""

from __future__ import annotations

import os
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_loaded import loaded
from ansible.module_utils.gpustrap_node.host import Host
from ansible.module_utils.gpustrap_node.toml import value
from ansible.module_utils.gpustrap_snap import SNAP, SNAP_PATHS

DOCUMENTATION = r"""
module: gpustrap_container_preflight
short_description: Look at what containers need to use the GPUs, before anything is set up
description:
  - Refuses docker's snap and a driver without its libraries. Warns of a podman too old for the specification, and of a
    setting of the toolkit's that C(docker run --gpus) does not work with. Changes nothing.
options:
  podman_min: {type: str, required: true, description: The oldest podman that reads the toolkit's specification.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_container_preflight:
    podman_min: "5.1"
"""
RETURN = r"""
driver: {type: str, returned: success, description: Version of the driver; empty where it waits for a reboot.}
docker: {type: bool, returned: success, description: Docker is installed.}
"""

PATH = "/etc/nvidia-container-runtime/config.toml"
RUNTIME = "nvidia-container-runtime"
DOCKERD = ("/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd")
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
NVML = "libnvidia-ml.so.1"
NO_NVML = (
    "driver {0} is loaded, but its library {1} is not there, without which no container gets a GPU; install the"
    " driver's packages of the lock: gpustrap apply NODE"
)
OLD_PODMAN = "podman {0} cannot read the toolkit's CDI specification, which takes {1}: its containers get no GPU"
MODE = (
    '{0} has mode = "cdi", with which docker run --gpus fails (invoking the NVIDIA Container Runtime Hook directly is'
    ' not supported); use --device nvidia.com/gpu=all, or set mode = "auto"'
)


def main() -> None:
    """Answer one task."""
    module = AnsibleModule(argument_spec={"podman_min": {"type": "str", "required": True}}, supports_check_mode=True)
    host = Host()
    driver, why = loaded(host)
    docker = any(os.path.exists(path) for path in DOCKERD)
    problems = [SNAP] if not docker and any(os.path.exists(path) for path in SNAP_PATHS) else []
    if driver and not any(os.path.exists(os.path.join(directory, NVML)) for directory in LIBRARIES):
        problems.append(NO_NVML.format(driver, NVML))
    if problems:
        module.fail_json(msg="\n".join(problems))
    if why:
        module.warn("containers get no GPU until a reboot: " + why)
    podman = podman_version(module)
    if podman and numbers(podman) < numbers(module.params["podman_min"]):
        module.warn(OLD_PODMAN.format(podman, module.params["podman_min"]))
    if value(host.read(PATH) or "", RUNTIME, "mode") == "cdi":
        module.warn(MODE.format(PATH))
    module.exit_json(changed=False, driver=driver, docker=docker)


def podman_version(module: AnsibleModule) -> str:
    """The version of podman; empty where there is none."""
    path = module.get_bin_path("podman")
    _rc, out, _err = module.run_command([path, "--version"]) if path else (1, "", "")
    found = re.search(r"version (\d+(?:\.\d+)*)", out)
    return found.group(1) if found else ""


def numbers(version: str) -> tuple[Any, ...]:
    """``5.10.0`` -> (5, 10, 0)."""
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    main()
