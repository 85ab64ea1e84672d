"""Ansible module: a repository's key as a file for dnf, if it is the pinned one."""

from __future__ import annotations

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_native
from ansible.module_utils.gpustrap_openpgp import BadKeyError, keyring
from ansible.module_utils.urls import open_url

DOCUMENTATION = r"""
module: gpustrap_rpm_key_file
short_description: A key file for dnf that holds exactly the pinned primary keys
description:
  - For repositories whose index is signed and whose packages are not (C(repo_gpgcheck)). dnf then takes every key that
    the file holds, so that it must be the node's own copy, and hold no other. What is there is not fetched again.
options:
  path: {type: path, required: true, description: Where the file is to be.}
  url: {type: str, required: true, description: Where the key is.}
  fingerprints: {type: list, elements: str, required: true, description: The primary keys it must hold.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_rpm_key_file:
    path: /etc/pki/rpm-gpg/RPM-GPG-KEY-gpustrap-container-toolkit
    url: https://nvidia.github.io/libnvidia-container/gpgkey
    fingerprints: [C95B321B61E88C1809C4F759DDCAE044F796ECB0]
"""
RETURN = r"""
claims: {type: list, returned: success, description: The file.}
"""

KEY_LIMIT = 1 << 20


def main() -> None:
    """Fetches the key unless it is there."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "url": {"type": "str", "required": True},
            "fingerprints": {"type": "list", "elements": "str", "required": True, "no_log": False},
        },
        supports_check_mode=True,
    )
    path, pinned = module.params["path"], module.params["fingerprints"]
    there = holds(path, pinned)
    if not there:
        put(module, path, fetch(module, module.params["url"], pinned))
    module.exit_json(changed=not there, claims=[{"kind": "file", "name": path}])


def holds(path: str, pinned: list[str]) -> bool:
    """Whether the file holds exactly the pinned keys."""
    try:
        with open(path, "rb") as file:
            return bool(keyring(file.read(), pinned))
    except (FileNotFoundError, BadKeyError):
        return False


def fetch(module: AnsibleModule, url: str, pinned: list[str]) -> bytes:
    """The key as it is published, if it is what was pinned."""
    try:
        data: bytes = open_url(url, timeout=30, http_agent="gpustrap").read(KEY_LIMIT)
    except Exception as error:  # noqa: BLE001 - urllib's, ssl's and socket's errors have no common base
        module.fail_json(msg="the key at {0} cannot be had: {1}".format(url, to_native(error)))
    try:
        keyring(data, pinned)
    except BadKeyError as error:
        module.fail_json(msg="the key at {0} was refused: {1}".format(url, error))
    return data


def put(module: AnsibleModule, path: str, data: bytes) -> None:
    """Replaces the file in one step."""
    if module.check_mode:
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.chmod(scratch, 0o644)
    module.atomic_move(scratch, path)


if __name__ == "__main__":
    main()
