"""Ansible module: which modules the kernel loads, which never, with which options, from the initramfs on."""

from __future__ import annotations

import grp
import json
import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_host import read_text, write_text
from ansible.module_utils.gpustrap_initramfs import NOTED, Initramfs
from ansible.module_utils.gpustrap_kernel_modules import HEADER, Options, contradictions, lines, render, screen, wanted
from ansible.module_utils.gpustrap_node.host import Host

DOCUMENTATION = r"""
module: gpustrap_kernel_modules
short_description: Have modules loaded at boot, others never, with options, in every kernel's initramfs too
description:
  - Writes one file of ours each to C(modprobe.d), C(modules-load.d) and, where dracut makes the initramfs,
    C(dracut.conf.d). Other files stay as they are; lines in them, or on the kernel's command line, that say the
    contrary are warned of.
  - Each bootable kernel's initramfs is looked into; all are made anew, once, if one of them is older than the file, or
    holds modules that must not be loaded without it, or an older driver than the one on disk. Where grubby is, the
    kernel's command line keeps them out too (C(rd.driver.blacklist)).
options:
  name: {type: str, required: true, description: Name of the files, without .conf.}
  blacklist: {type: list, elements: str, default: [], description: Modules that must never be loaded by themselves.}
  options:
    type: list
    elements: dict
    default: []
    description: Options of modules.
    suboptions:
      module: {type: str, required: true, description: The module.}
      values: {type: dict, required: true, description: "Option: value."}
      units: {type: list, elements: str, default: [], description: Set only where all of these units are there.}
  group: {type: str, default: "", description: "Group that alone may open NVIDIA's device files. Empty lets everybody."}
  load: {type: list, elements: str, default: [], description: Modules to load at boot.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_kernel_modules:
    name: gpustrap-nvidia
    blacklist: [nouveau]
    options: [{module: nouveau, values: {modeset: "0"}}]
    load: [nvidia, nvidia_uvm]
"""
RETURN = r"""
contradictions: {type: list, returned: success, description: What other files say against it.}
rebuilt: {type: list, returned: success, description: "Images that were, or would be, made anew, each with the reason."}
claims: {type: list, returned: success, description: One resource per file.}
"""

ENTRY = {
    "module": {"type": "str", "required": True},
    "values": {"type": "dict", "required": True},
    "units": {"type": "list", "elements": "str", "default": []},
}
SPEC = {
    "name": {"type": "str", "required": True},
    "blacklist": {"type": "list", "elements": "str", "default": []},
    "options": {"type": "list", "elements": "dict", "default": [], "options": ENTRY},
    "group": {"type": "str", "default": ""},
    "load": {"type": "list", "elements": "str", "default": []},
}
MAKERS = (
    ("/usr/sbin/update-initramfs", ["-u", "-k", "all"]),
    ("/usr/bin/dracut", ["--regenerate-all", "--force"]),
)
SCREEN = (
    "a desktop starts on GPU %s, and the driver's packages here are for computing only: after the reboot the processor "
    "draws it. Nothing of the desktop was changed"
)
GRUBBY = "/usr/sbin/grubby"


def main() -> None:
    """Writes, compares, makes the images anew, looks again."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    result = Work(module, Host("/")).run()
    for said in result["contradictions"]:
        module.warn("%s. It was left as it is" % said)
    module.exit_json(**result)


class Work:
    """One run on one machine."""

    def __init__(self, module: AnsibleModule, host: Host) -> None:
        self.module, self.host, self.given = module, host, module.params
        self.maker = next(([host.path(path), *words] for path, words in MAKERS if host.exists(path)), [])
        self.conf = "/etc/modprobe.d/%s.conf" % self.given["name"]

    def run(self) -> dict[str, Any]:
        """The module's result."""
        shown = screen(self.host)
        if shown:
            self.module.warn(SCREEN % shown)
        found = lines(self.host, self.conf)
        options = wanted(self.host, self._options(), found)
        files = self._files(render(self.given["blacklist"], options))
        diff = [self._write(path, text) for path, text in files.items()]
        changed = [one for one in diff if one["before"] != one["after"]]
        arguments = self._kernel_arguments()
        rebuilt = self._initramfs(files[self.conf])
        return {
            "changed": bool(changed or rebuilt or arguments),
            "contradictions": contradictions(found, self.host.line("/proc/cmdline"), options, self.given["load"]),
            "rebuilt": rebuilt,
            "claims": [{"kind": "file", "name": path} for path in files],
            "diff": changed,
        }

    def _options(self) -> list[Options]:
        given = [
            Options(one["module"], {k: str(v) for k, v in one["values"].items()}, tuple(one["units"]))
            for one in self.given["options"]
        ]
        return given + self._group()

    def _group(self) -> list[Options]:
        """nvidia-modprobe and the driver's libraries make the device files with what the module was given."""
        name = self.given["group"]
        if not name:
            return []
        try:
            number = grp.getgrnam(name).gr_gid
        except KeyError:
            self.module.fail_json(
                msg="there is no group %s on this node, for gpustrap_gpu_group. Create it: sudo groupadd --system %s"
                % (name, name)
            )
        values = {"NVreg_DeviceFileUID": "0", "NVreg_DeviceFileGID": str(number), "NVreg_DeviceFileMode": "0660"}
        return [Options("nvidia", values)]

    def _files(self, modprobe: str) -> dict[str, str]:
        files = {self.conf: modprobe}
        files["/etc/modules-load.d/%s.conf" % self.given["name"]] = HEADER + "".join(
            "%s\n" % name for name in self.given["load"]
        )
        if self.host.is_dir("/etc/dracut.conf.d"):
            omitted = " ".join(self.given["blacklist"])
            files["/etc/dracut.conf.d/%s.conf" % self.given["name"]] = HEADER + 'omit_drivers+=" %s "\n' % omitted
        return files

    def _write(self, path: str, text: str) -> dict[str, str]:
        before = read_text(self.host.path(path))
        if before != text and not self.module.check_mode:
            os.makedirs(os.path.dirname(self.host.path(path)), mode=0o755, exist_ok=True)
            write_text(self.host.path(path), text)
        return {"before_header": path, "after_header": path, "before": before, "after": text}

    def _kernel_arguments(self) -> bool:
        """What dracut reads before any file: needed where images are made for no machine in particular."""
        if not self.host.exists(GRUBBY) or not self.given["blacklist"]:
            return False
        _rc, shown, _err = self.module.run_command([self.host.path(GRUBBY), "--info=ALL"], check_rc=True)
        ours = set(self.given["blacklist"])
        every = [line for line in shown.splitlines() if line.startswith("args=")]
        there = [blacklisted(line) for line in every]
        if not every or all(ours <= one for one in there):
            return False
        if not self.module.check_mode:
            names = ",".join(sorted(ours.union(*there)))
            arguments = ["--update-kernel=ALL", "--args=rd.driver.blacklist=" + names]
            self.module.run_command([self.host.path(GRUBBY), *arguments], check_rc=True)
        return True

    def _initramfs(self, text: str) -> list[str]:
        images = Initramfs(self.host, self.conf, text, self.given["blacklist"])
        before = dict(images.noted)
        bad = images.bad()
        said = ["%s: %s" % (one.path, one.why) for one in bad]
        if bad and not self.maker:
            for one in said:
                self.module.warn("%s, and nothing that makes an initramfs is installed" % one)
            return []
        if self.module.check_mode:
            return said
        if bad:
            self._make()
            still = images.bad()
            if still:
                self.module.fail_json(
                    msg="%s ended well, but %s: %s. Look at its configuration, then apply again"
                    % (self.maker[0], still[0].path, still[0].why)
                )
        if images.noted != before:
            os.makedirs(os.path.dirname(self.host.path(NOTED)), mode=0o755, exist_ok=True)
            write_text(self.host.path(NOTED), json.dumps(images.noted, indent=1, sort_keys=True) + "\n")
        return said

    def _make(self) -> None:
        conf = self.host.path(self.conf)
        if os.stat(conf).st_mtime > time.time():  # written before the clock was set back: nothing would be newer
            os.utime(conf)
        rc, out, err = self.module.run_command(self.maker)
        if rc == 0:
            return
        why = "ended with %d" % rc
        if "No space left" in out + err:
            why = "found no space in /boot. Remove old kernels: sudo apt-get autoremove --purge"
        words = (err or out).strip().splitlines()[-12:]
        self.module.fail_json(msg="\n".join(["%s %s" % (self.maker[0], why), *words]))


def blacklisted(arguments: str) -> set[str]:
    """The modules that dracut is told to leave out, in grubby's line of a kernel's arguments."""
    words = arguments.replace('"', " ").split()
    values = [word.partition("=")[2] for word in words if word.startswith("rd.driver.blacklist=")]
    return {name for value in values for name in value.split(",") if name}


if __name__ == "__main__":
    main()
