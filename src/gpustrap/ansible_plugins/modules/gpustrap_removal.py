#!/usr/bin/python
"""Ansible module: what gpustrap installed of a part of the stack is gone, and nothing else. See DOCUMENTATION."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_apt import AptError, Runner, apt_get, held_lock, tail, wait_for_locks
from ansible.module_utils.gpustrap_gpu_settings import RECORD
from ansible.module_utils.gpustrap_initramfs import NOTED
from ansible.module_utils.gpustrap_node import ledger, removal
from ansible.module_utils.gpustrap_node.host import Host, NodeError

DOCUMENTATION = r"""
module: gpustrap_removal
short_description: Remove what gpustrap installed of the driver or of CUDA, and nothing else
description:
  - Removes the packages that the roles of this part claimed in the ledger and that were not there before gpustrap's
    first run, with what apt brought along for them and nothing needs any more; then the files that only these roles
    have, where they are as the last run left them. Configuration files of packages stay (apt remove, not purge).
  - Refuses while the lock still has one of the roles, while processes have the GPUs open, where the node has no
    ledger, and where another package needs one of these.
  - Takes back the holds of packages that stay, as of the kernel that moved together with prebuilt modules.
  - Makes every kernel's initramfs anew, once, where our blacklist went. Takes out of the ledger what is gone.
options:
  part:
    description: What to remove; the driver is removed together with its fabric manager.
    type: str
    choices: [driver, cuda]
    required: true
  wanted:
    description: The roles that the lock has for this node.
    type: list
    elements: str
    required: true
  gpu_users:
    description: Whether processes may lose the GPUs.
    type: str
    choices: [refuse, allow]
    default: refuse
  approved:
    description: The packages and files that somebody agreed to; where there is more now, nothing is removed.
    type: dict
  lock_timeout:
    description: How long to wait for another package manager, in seconds.
    type: int
    default: 300
author: [gpustrap]
attributes:
  check_mode:
    support: full
    description: Only looks.
"""
EXAMPLES = r"""
- name: Ensure what gpustrap installed of CUDA is gone
  gpustrap_removal:
    part: cuda
    wanted: "{{ gpustrap_roles }}"
"""
RETURN = r"""
packages: {type: list, returned: success, description: What was, or would be, removed.}
files: {type: list, returned: success, description: What was, or would be, deleted.}
kept: {type: list, returned: success, description: "What stays, each with the reason."}
claims: {type: list, returned: success, description: Nothing.}
"""

MAKERS = (
    ("/usr/sbin/update-initramfs", ["-u", "-k", "all"]),
    ("/usr/bin/dracut", ["--regenerate-all", "--force"]),
)
EARLY = re.compile(r"/etc/(modprobe|dracut\.conf)\.d/")  # what an initramfs holds a copy of
OWN_DIRECTORY = re.compile(r"/etc/systemd/system/[^/]+\.d\Z")
ALTERNATIVES = "/etc/alternatives/"
LOOKING = 300.0  # seconds for apt's simulations, after it was waited for
NOTES = {"driver": (NOTED, RECORD), "cuda": ()}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "part": {"type": "str", "choices": sorted(removal.PARTS), "required": True},
            "wanted": {"type": "list", "elements": "str", "required": True},
            "gpu_users": {"type": "str", "choices": ["refuse", "allow"], "default": "refuse"},
            "approved": {"type": "dict"},
            "lock_timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**remove(module, Host(budget=module.params["lock_timeout"] + LOOKING), Runner()))
    except NodeError as error:
        module.fail_json(msg=str(error), code=error.code)
    except AptError as error:
        module.fail_json(msg=str(error), stderr=error.evidence)


def remove(module: AnsibleModule, host: Host, runner: Runner) -> dict[str, Any]:
    """Look, compare with what was agreed to, act, and forget what is gone; the module's result."""
    given = module.params
    if not module.check_mode:
        wait_for_locks(runner, given["lock_timeout"], partial(held_lock, host))
    found = removal.look(host, given["part"], given["wanted"], partial(removal.simulate, host))
    if given["gpu_users"] == "refuse":
        removal.refuse_users(host, given["part"], found)
    refuse_more(found, given["approved"])
    result = {
        "changed": bool(found.packages or found.files or found.units or found.released),
        "packages": found.packages,
        "files": found.files,
        "kept": found.kept,
        "claims": [],
        "diff": {"before": "".join(line + "\n" for line in [*found.packages, *found.files]), "after": ""},
    }
    if module.check_mode:
        return result
    for unit in found.units:
        run(runner, ["systemctl", "disable", "--now", unit])
    if found.released:
        run(runner, ["apt-mark", "unhold", "--", *found.released])
    if found.packages:
        words = ["--allow-change-held-packages", "remove", "--", *found.packages]
        apt_get(runner, words, given["lock_timeout"])
    delete(host, runner, [*found.files, *NOTES[given["part"]]])
    dangling(host, runner, [name for kind, name in found.forgotten if kind == "link"])
    if any(EARLY.match(path) for path in found.files):
        make_initramfs(host, runner)
    ledger.forget(host, set(found.forgotten))
    return result


def refuse_more(found: removal.Removal, approved: dict[str, Any] | None) -> None:
    """What was shown to somebody counts, also where the node looks different by now.

    Raises:
        NodeError: More would go than was agreed to.
    """
    if approved is None:
        return
    more = {*found.packages, *found.files} - {*approved.get("packages", []), *approved.get("files", [])}
    if more:
        raise NodeError(
            "more-than-approved", "there is more to remove now than was shown: %s" % ", ".join(sorted(more))
        )


def delete(host: Host, runner: Runner, paths: list[str]) -> None:
    """Delete files, and the directories of units' settings that are empty then."""
    for path in paths:
        where = host.path(path)
        if os.path.lexists(where):
            os.unlink(where)
        parent = os.path.dirname(path)
        if OWN_DIRECTORY.match(parent) and host.is_dir(parent) and not host.names(parent):
            os.rmdir(host.path(parent))
    if any("/systemd/" in path for path in paths):
        run(runner, ["systemctl", "daemon-reload"])


def dangling(host: Host, runner: Runner, links: list[str]) -> None:
    """Alternatives of ours that lead nowhere now; packages take back those that they made."""
    for link in links:
        target = host.readlink(link)
        if link.startswith(ALTERNATIVES) and target and not host.exists(target):
            run(runner, ["update-alternatives", "--remove", link[len(ALTERNATIVES) :], target])


def make_initramfs(host: Host, runner: Runner) -> None:
    """Every kernel's, so that the next boot may load what was kept out."""
    maker = next(([path, *words] for path, words in MAKERS if host.exists(path)), None)
    if maker:
        run(runner, maker)


def run(runner: Runner, argv: list[str]) -> None:
    """Run a command that must end well.

    Raises:
        AptError: It did not, in its own words.
    """
    code, output = runner.run(argv)
    if code:
        raise AptError("%s ended with %d: %s" % (" ".join(argv), code, tail(output, 5)))


if __name__ == "__main__":
    main()
