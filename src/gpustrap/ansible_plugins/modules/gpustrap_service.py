"""Ansible module: units that run, and run what is on disk now."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: gpustrap_service
short_description: Enable and start units, restart those older than their configuration or program
description:
  - A unit is restarted if one of its files was written after it was started. That holds also when the run that wrote
    the file was interrupted before the restart, which a handler or a registered result would forget.
options:
  units:
    type: list
    elements: dict
    required: true
    description: In the order in which they are started.
    suboptions:
      name: {type: str, required: true, description: Unit name with suffix.}
      files: {type: list, elements: path, default: [], description: Configuration; content written (mtime) counts.}
      programs: {type: list, elements: path, default: [], description: Programs; installed (ctime) counts.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_service:
    units:
      - name: docker.service
        files: [/etc/docker/daemon.json]
        programs: [/usr/bin/dockerd]
"""
RETURN = r"""
actions: {type: list, returned: success, description: What was done, or would be done.}
claims: {type: list, returned: success, description: One resource per unit.}
"""

SHOW = "LoadState,ActiveState,UnitFileState,ExecMainStartTimestampMonotonic,NeedDaemonReload"


def main() -> None:
    """Goes through the units in order."""
    unit = {
        "name": {"type": "str", "required": True},
        "files": {"type": "list", "elements": "path", "default": []},
        "programs": {"type": "list", "elements": "path", "default": []},
    }
    module = AnsibleModule(
        argument_spec={"units": {"type": "list", "elements": "dict", "required": True, "options": unit}},
        supports_check_mode=True,
    )
    actions = []
    for one in module.params["units"]:
        actions.extend(bring_up(module, one))
    claims = [{"kind": "unit", "name": one["name"]} for one in module.params["units"]]
    module.exit_json(changed=bool(actions), actions=actions, claims=claims)


def bring_up(module: AnsibleModule, unit: dict[str, Any]) -> list[Any]:
    """Enables, starts or restarts one unit; says what it did."""
    name = unit["name"]
    state = show(module, name)
    if state["LoadState"] == "masked":
        module.fail_json(msg="{0} is masked on this node; unmask it first: systemctl unmask {0}".format(name))
    if state["LoadState"] != "loaded":
        module.fail_json(msg="{0}: systemd says {1}".format(name, state["LoadState"]))
    verbs = [] if state["UnitFileState"] == "enabled" else ["enable"]
    if state["ActiveState"] != "active":
        verbs.append("start")
    elif written_since(started(state), unit["files"], unit["programs"]):
        verbs.append("restart")
    if not module.check_mode:
        if state["NeedDaemonReload"] == "yes":
            systemctl(module, "daemon-reload")
        for verb in verbs:
            systemctl(module, verb, name)
    return ["{0} {1}".format(verb, name) for verb in verbs]


def show(module: AnsibleModule, name: str) -> dict[str, Any]:
    """The properties we decide by."""
    _rc, out, _err = module.run_command(["systemctl", "show", name, "--property=" + SHOW], check_rc=True)
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def started(state: dict[str, Any]) -> float:
    """When the unit's program was started, in seconds of today's clock."""
    monotonic = int(state.get("ExecMainStartTimestampMonotonic") or 0) / 1e6
    return time.time() - (time.monotonic() - monotonic)


def written_since(start: float, files: list[Any], programs: list[Any]) -> bool:
    """Whether the unit runs something else than what is on disk."""
    times = [os.stat(path).st_mtime for path in files if os.path.exists(path)]
    times += [os.stat(path).st_ctime for path in programs if os.path.exists(path)]
    return max(times, default=0.0) > start


def systemctl(module: AnsibleModule, verb: str, *names: str) -> None:
    """Runs it, or ends with the unit's own last words."""
    rc, _out, err = module.run_command(["systemctl", verb, *names])
    if rc != 0:
        journal = ["journalctl", "--no-pager", "-o", "cat", "-n", "12", *("--unit=" + name for name in names)]
        words = module.run_command(journal)[1]
        module.fail_json(msg="systemctl {0} {1}: {2}\n{3}".format(verb, " ".join(names), err.strip(), words.strip()))


if __name__ == "__main__":
    main()
