"""Ansible module: persistence mode and power limits of GPUs, now and at every boot."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_gpu_settings import (
    ASK,
    RECORD,
    Gpu,
    blocks,
    off,
    parse,
    persistenced_dropin,
    recorded,
    refused,
    rivals,
    unsettable,
)
from ansible.module_utils.gpustrap_host import read_text, write_text
from ansible.module_utils.gpustrap_node.host import Host

DOCUMENTATION = r"""
module: gpustrap_gpu_settings
short_description: Set persistence mode and power limits of GPUs, now and at every boot
description:
  - Writes a program and a unit of ours that sets both at boot. Where the packages bring C(nvidia-persistenced.service),
    a drop-in of ours gives its command persistence mode. Other units that set the same are warned of, not changed.
  - Where the driver runs, the unit is started when something is not as asked for, and a limit that a board cannot have
    is refused before anything is written. Where it does not run yet, the next boot sets both.
  - A GPU's limit before the first one of ours is recorded on the node; without a limit of ours it gets that one back.
  - No process is stopped, and no display manager restarted.
options:
  persistence_mode: {type: bool, default: true, description: Keep the driver loaded between jobs.}
  power_limits:
    type: list
    elements: dict
    default: []
    description: Limits to set; GPUs that are not named have their own.
    suboptions:
      address: {type: str, required: true, description: "PCI address, 0000:01:00.0."}
      watts: {type: int, required: true, description: The limit.}
  group: {type: str, default: "", description: "Group that alone may open the device files. Empty: everybody may."}
  suspend_units: {type: list, elements: str, default: [], description: Units of the packages that save a GPU's memory.}
  program: {type: str, required: true, description: Text of the program.}
  unit: {type: str, required: true, description: Text of the unit.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_gpu_settings:
    power_limits: [{address: "0000:01:00.0", watts: 250}]
    program: "{{ lookup('ansible.builtin.file', 'gpustrap-gpu-settings.sh', rstrip=false) }}"
    unit: "{{ lookup('ansible.builtin.template', 'gpustrap-gpu-settings.service.j2') }}"
"""
RETURN = r"""
actions: {type: list, returned: success, description: "What was done, or would be done."}
waits: {type: str, returned: success, description: "Why the settings wait for the next boot; empty where they are set."}
claims: {type: list, returned: success, description: One resource per file and unit.}
"""

LIMIT = {"address": {"type": "str", "required": True}, "watts": {"type": "int", "required": True}}
SPEC = {
    "persistence_mode": {"type": "bool", "default": True},
    "power_limits": {"type": "list", "elements": "dict", "default": [], "options": LIMIT},
    "group": {"type": "str", "default": ""},
    "suspend_units": {"type": "list", "elements": "str", "default": []},
    "program": {"type": "str", "required": True},
    "unit": {"type": "str", "required": True},
}
PROGRAM = "/usr/local/sbin/gpustrap-gpu-settings"
UNIT = "gpustrap-gpu-settings.service"
DAEMON = "nvidia-persistenced.service"
UNITS = "/etc/systemd/system"
DROPIN = UNITS + "/" + DAEMON + ".d/gpustrap-persistence.conf"
SHOW = "Id,LoadState,UnitFileState,ActiveState,FragmentPath,DropInPaths,ActiveEnterTimestampMonotonic"
DRIVER = "/proc/driver/nvidia/version"
PATIENCE = 60.0  # seconds; nvidia-smi wakes every GPU, and hangs on a broken one


def main() -> None:
    """Refuses, writes, enables, starts."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.exit_json(**Settings(module, Host("/")).run())


class Settings:
    """One run on one machine."""

    def __init__(self, module: AnsibleModule, host: Host) -> None:
        self.module, self.host, self.given = module, host, module.params
        self.limits = {one["address"]: one["watts"] for one in self.given["power_limits"]}
        self.actions: list[str] = []
        self.waits = ""

    def run(self) -> dict[str, Any]:
        """The module's result."""
        gpus = self._gpus()
        self._refuse(gpus)
        units = self._show()
        dropin = self._dropin(units.get(DAEMON, {}))
        files = {PROGRAM: self.given["program"], UNITS + "/" + UNIT: self.given["unit"], DROPIN: dropin}
        diff = [self._write(path, text) for path, text in files.items()]
        written = [one for one in diff if one["before"] != one["after"]]
        if written and not self.module.check_mode:
            self._systemctl("daemon-reload")
        managed = [UNIT, *([DAEMON] if dropin else []), *self._suspend(units)]
        for name in managed:
            state = units.get(name, {}).get("UnitFileState", "")
            if state == "disabled" or (name == UNIT and not state):
                self._act("enable", name)
        if gpus:
            self._settle(gpus, units)
        return {
            "changed": bool(written or self.actions),
            "actions": self.actions,
            "waits": self.waits,
            "diff": written,
            "claims": [{"kind": "file", "name": path} for path, text in files.items() if text]
            + [{"kind": "unit", "name": name} for name in managed],
        }

    def _gpus(self) -> list[Gpu]:
        """The GPUs as they run; none where the driver does not run yet, or does not answer."""
        if not self.host.exists(DRIVER):
            self.waits = "the driver is not loaded yet"
            return []
        answer = self.host.run(ASK, PATIENCE)
        gpus = parse(answer.stdout) if answer is not None else []
        if not gpus:
            words = " ".join((answer.stdout + answer.stderr).split()) if answer is not None else ""
            self.waits = "nvidia-smi: %s" % (words[:300] or "no answer within %d s, or not installed" % PATIENCE)
        return gpus

    def _refuse(self, gpus: list[Gpu]) -> None:
        found = refused(gpus, self.limits)
        if found:
            self.module.fail_json(msg="; ".join(found) + ". Change gpustrap_gpu_power_limit, then plan and apply again")
        for gpu in unsettable(gpus, self.limits):
            self.module.warn("%s does not let its power limit be set: gpustrap_gpu_power_limit is left out" % gpu)

    def _show(self) -> dict[str, dict[str, str]]:
        names = [UNIT, DAEMON, *self.given["suspend_units"]]
        _rc, shown, _err = self.module.run_command(["systemctl", "show", "--property=" + SHOW, *names], check_rc=True)
        found: dict[str, dict[str, str]] = blocks(shown)
        return found

    def _dropin(self, daemon: dict[str, str]) -> str:
        """Text of the drop-in; empty where the packages have no such unit. Warns of what is against us."""
        others = [path for path in daemon.get("DropInPaths", "").split() if path != DROPIN]
        others += [path for path in self.host.match(UNITS, "*.service") if path != UNITS + "/" + UNIT]
        texts = {path: self.host.read(path) or "" for path in others}
        found = rivals(texts) + [p for p in others if ".d/" in p and "ExecStart=" in texts[p]]
        for rival in found:
            self.module.warn("%s sets what gpustrap sets, too; it was left as it is" % rival)
        if daemon.get("LoadState") == "masked":
            self.module.warn("nvidia-persistenced.service is masked; %s sets persistence mode without it" % UNIT)
        if not self.given["persistence_mode"] or daemon.get("LoadState") != "loaded":
            return ""
        text: str = persistenced_dropin(self.host.read(daemon["FragmentPath"]) or "", self.given["group"])
        return text

    def _suspend(self, units: dict[str, dict[str, str]]) -> list[str]:
        """The packages' units that save a GPU's memory in sleep: all or none, as one alone would lose it."""
        names: list[str] = self.given["suspend_units"]
        return names if all(units.get(name, {}).get("LoadState") == "loaded" for name in names) else []

    def _settle(self, gpus: list[Gpu], units: dict[str, dict[str, str]]) -> None:
        if self.given["persistence_mode"] and self._daemon(units.get(DAEMON, {})) and not self.module.check_mode:
            gpus = self._gpus()
        before = recorded(self.host.read(RECORD) or "")
        found = off(gpus, self.given["persistence_mode"], self.limits, before)
        if not found:
            return
        self._act("restart", UNIT, why="; ".join(found))
        if self.module.check_mode:
            return
        before = recorded(self.host.read(RECORD) or "")
        left = off(self._gpus(), self.given["persistence_mode"], self.limits, before)
        if left:
            self.module.fail_json(msg="%s ran, and still: %s\n%s" % (UNIT, "; ".join(left), self._journal(UNIT)))

    def _daemon(self, daemon: dict[str, str]) -> bool:
        """Have the daemon run with our drop-in; whether it was started anew."""
        if daemon.get("LoadState") != "loaded":
            return False
        verb = "start" if daemon["ActiveState"] != "active" else ""
        status = self.host.stat(DROPIN)
        if not verb and (status is None or status.st_mtime > self._started(daemon)):
            verb = "restart"
        if not verb:
            return False
        if self.module.check_mode:
            self.actions.append("%s %s" % (verb, DAEMON))
            return False
        rc, _out, err = self.module.run_command(["systemctl", verb, DAEMON])
        if rc != 0:
            self.module.warn("systemctl %s %s: %s\n%s" % (verb, DAEMON, err.strip(), self._journal(DAEMON)))
            return False
        self.actions.append("%s %s" % (verb, DAEMON))
        return True

    @staticmethod
    def _started(unit: dict[str, str]) -> float:
        monotonic = int(unit.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
        return time.time() - (time.monotonic() - monotonic)

    def _write(self, path: str, text: str) -> dict[str, str]:
        """Have a file hold a text, or gone where it is empty."""
        where, mode = self.host.path(path), 0o755 if path == PROGRAM else 0o644
        before = read_text(where)
        if text and before and os.stat(where).st_mode & 0o7777 != mode:
            before += "(with another mode)\n"
        if before != text and not self.module.check_mode:
            if text:
                os.makedirs(os.path.dirname(where), mode=0o755, exist_ok=True)
                write_text(where, text)
                os.chmod(where, mode)
            else:
                os.unlink(where)
        return {"before_header": path, "after_header": path, "before": before, "after": text}

    def _act(self, verb: str, name: str, why: str = "") -> None:
        self.actions.append("%s %s%s" % (verb, name, " (%s)" % why if why else ""))
        if not self.module.check_mode:
            self._systemctl(verb, name)

    def _systemctl(self, verb: str, *names: str) -> None:
        rc, _out, err = self.module.run_command(["systemctl", verb, *names])
        if rc != 0:
            words = [self._journal(name) for name in names]
            self.module.fail_json(msg="systemctl %s %s: %s" % (verb, " ".join(names), "\n".join([err.strip(), *words])))

    def _journal(self, name: str) -> str:
        argv = ["journalctl", "--no-pager", "-o", "cat", "-n", "12", "--unit=" + name]
        return str(self.module.run_command(argv)[1]).strip()


if __name__ == "__main__":
    main()
