"""Ansible module: components of the distribution's own archive are switched on, in the live format of its sources."""

from __future__ import annotations

import os
import tempfile
from glob import glob

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_apt import ACT_SECONDS, Runner, tail
from ansible.module_utils.gpustrap_apt_components import ORIGINS, list_name, origin, with_components
from ansible.module_utils.gpustrap_node.host import Host
from ansible.module_utils.gpustrap_node.system import parse_os_release

DOCUMENTATION = r"""
module: gpustrap_apt_components
short_description: Components of the distribution's archive, e.g. contrib and non-free
description:
  - Adds components to the entries of the node's own archive, deb822 or one-line, whichever are live; everything else in
    these files stays, and a backup lies beside them. Entries of which apt knows that somebody else publishes them
    (a browser's, a PPA) are left alone. Fetches the package lists of what changed; where a mirror does not
    have a component, the files are put back as they were.
options:
  components: {type: list, elements: str, required: true, description: "Components, e.g. non-free."}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_apt_components:
    components: [contrib, non-free, non-free-firmware]
"""
RETURN = r"""
written: {type: list, returned: success, description: "Files that were changed, or would be."}
claims: {type: list, returned: success, description: "Nothing; the files are the distribution's."}
"""

APT = "/etc/apt"
LISTS = "/var/lib/apt/lists"
ALIASES = ("stable", "oldstable")  # what a release is called in sources that were not written by its codename


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"components": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True
    )
    codename = parse_os_release(Host().read("/etc/os-release") or "").get("VERSION_CODENAME", "")
    suites = [codename, *ALIASES]
    written, before, entries = [], {}, 0
    for path in [APT + "/sources.list", *sorted(glob(APT + "/sources.list.d/*"))]:
        if not path.endswith((".list", ".sources")) or not os.path.isfile(path):
            continue
        text = read(path)
        deb822 = path.endswith(".sources")
        entries += with_components(text, deb822, ["gpustrap-probe"], suites, foreign) != text
        after = with_components(text, deb822, module.params["components"], suites, foreign)
        if after != text:
            written.append(path)
            before[path] = text
            if not module.check_mode:
                module.backup_local(path)
                write(module, path, after)
    if not entries:
        module.fail_json(
            msg="no live entry of {0}'s own archive with main in /etc/apt: {1} cannot be switched on".format(
                codename, " ".join(module.params["components"])
            )
        )
    if before and not module.check_mode:
        fetch(module, before)
    module.exit_json(changed=bool(written), written=written, claims=[])


def foreign(uri: str, suite: str) -> bool:
    """Whether apt has fetched of an entry that it is somebody else's archive."""
    for ending in ("_InRelease", "_Release"):
        path = LISTS + "/" + list_name(uri, suite) + ending
        if os.path.isfile(path):
            return origin(read(path)) not in ORIGINS
    return False


def fetch(module: AnsibleModule, before: dict[str, str]) -> None:
    """The lists of the changed files; what cannot be fetched would stop every later run of apt."""
    for path in before:
        only = ["-o", "Dir::Etc::SourceList=" + path, "-o", "Dir::Etc::SourceParts=-", "-o", "APT::Get::List-Cleanup=0"]
        argv = ["apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "-o", "DPkg::Lock::Timeout=300", *only, "update"]
        code, output = Runner().run(argv, ACT_SECONDS)
        if code:
            for changed, text in before.items():
                write(module, changed, text)
            module.fail_json(
                msg="the archive in {0} cannot be had with {1}; its files are as they were".format(
                    path, " ".join(module.params["components"])
                ),
                stderr=tail(output),
            )


def read(path: str) -> str:
    """A file's text; bytes that are none of UTF-8 stay as they are."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def write(module: AnsibleModule, path: str, text: str) -> None:
    """Replace a file in one step; apt reads them as an ordinary user."""
    handle, scratch = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(scratch, 0o644)
    module.atomic_move(scratch, path)


if __name__ == "__main__":
    main()
