"""Ansible module: NVIDIA's runtime in containerd's settings, merged by NVIDIA's own tool. See DOCUMENTATION."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: gpustrap_containerd
short_description: Let Kubernetes' containerd start containers with NVIDIA's runtime
description:
  - C(nvidia-ctk runtime configure) writes a file of its own beside containerd's settings, and has these read it. What
    containerd then makes of all of them is looked at; if it does not know the runtime, or cannot read them any more,
    everything is put back as it was. The old settings stay beside the new ones.
options:
  config: {type: path, default: /etc/containerd/config.toml, description: containerd's settings.}
  drop_in: {type: path, default: /etc/containerd/conf.d/99-nvidia.toml, description: The file beside them.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_containerd:
"""
RETURN = r"""
backup: {type: str, returned: when settings were changed, description: Where the old ones are.}
claims: {type: list, returned: success, description: The file beside the settings.}
"""

RUNTIME = "nvidia-container-runtime"


def main() -> None:
    """Looks, merges, looks again."""
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "path", "default": "/etc/containerd/config.toml"},
            "drop_in": {"type": "path", "default": "/etc/containerd/conf.d/99-nvidia.toml"},
        },
        supports_check_mode=True,
    )
    config, drop_in = module.params["config"], module.params["drop_in"]
    rc, dump, err = settings(module)
    if rc != 0:
        module.fail_json(msg="containerd cannot read its settings, which were left alone: " + err.strip())
    result: dict[str, Any] = {"changed": RUNTIME not in dump, "claims": [{"kind": "file", "name": drop_in}]}
    if result["changed"] and not module.check_mode:
        old = {path: read(path) for path in (config, drop_in)}
        if old[config] is not None:
            result["backup"] = module.backup_local(config)
        merge(module, config, drop_in, old)
    module.exit_json(**result)


def settings(module: AnsibleModule) -> tuple[int, str, str]:
    """All of containerd's settings, as it reads them."""
    found: tuple[int, str, str] = module.run_command(["containerd", "config", "dump"])
    return found


def merge(module: AnsibleModule, config: str, drop_in: str, old: dict[str, bytes | None]) -> None:
    """Has NVIDIA's tool do it; what does not work is undone."""
    argv = ["nvidia-ctk", "runtime", "configure", "--runtime=containerd", "--cdi.enabled"]
    rc, _out, err = module.run_command([*argv, "--config=" + config, "--drop-in-config=" + drop_in])
    said = err
    if rc == 0:
        rc, dump, said = settings(module)
        said = said if rc != 0 or RUNTIME in dump else "containerd does not read {0}".format(drop_in)
        rc = rc or int(RUNTIME not in dump)
    if rc != 0:
        for path, content in old.items():
            put_back(path, content)
        module.fail_json(
            msg="NVIDIA's runtime did not get into containerd's settings, which are as before: " + said.strip()
        )


def read(path: str) -> bytes | None:
    """The file, or None if it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def put_back(path: str, content: bytes | None) -> None:
    """The file as it was."""
    if content is not None:
        with open(path, "wb") as file:
            file.write(content)
    elif os.path.exists(path):
        os.unlink(path)


if __name__ == "__main__":
    main()
