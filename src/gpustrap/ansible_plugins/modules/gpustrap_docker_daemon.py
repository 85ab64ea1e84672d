"""Ansible module: our keys in docker's daemon.json, everything else left as it is."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_json import BadJsonError, has_bom, merge, parse, pointers, render

DOCUMENTATION = r"""
module: gpustrap_docker_daemon
short_description: Merge keys into /etc/docker/daemon.json
description:
  - Objects are merged key by key; keys that are not ours stay. The result is shown to C(dockerd --validate), with the
    options of docker's unit, before it replaces the file; the old file is kept beside it. A file that is not valid JSON
    stops the module and is left as it is.
options:
  keys: {type: dict, required: true, description: The keys to set.}
  path: {type: path, default: /etc/docker/daemon.json, description: The file.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_docker_daemon:
    keys: {log-driver: json-file, log-opts: {max-size: 50m}}
"""
RETURN = r"""
backup: {type: str, returned: when the file was replaced, description: Where the old file is.}
claims: {type: list, returned: success, description: One resource per key path.}
"""

UNIT_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")


def main() -> None:
    """Merges, validates, keeps a backup, replaces."""
    module = AnsibleModule(
        argument_spec={
            "keys": {"type": "dict", "required": True, "no_log": False},
            "path": {"type": "path", "default": "/etc/docker/daemon.json"},
        },
        supports_check_mode=True,
    )
    keys, path = module.params["keys"], os.path.realpath(module.params["path"])
    data = read(path)
    try:
        existing = parse(data or b"")
    except BadJsonError as error:
        module.fail_json(
            msg="{0} is not valid JSON: {1}. It was left as it is; repair it, then apply again".format(path, error)
        )
    merged = merge(existing, keys)
    changed = canonical(merged) != canonical(existing) or (data is not None and has_bom(data))
    result = {
        "changed": changed,
        "claims": [{"kind": "key", "name": module.params["path"] + "#" + pointer} for pointer in pointers(keys)],
        "diff": {
            "before_header": path,
            "after_header": path,
            "before": (data or b"").decode("utf-8", "replace"),
            "after": (render(merged) if changed else data or b"").decode("utf-8", "replace"),
        },
    }
    if changed and not module.check_mode:
        result.update(write(module, path, render(merged), exists=data is not None))
    module.exit_json(**result)


def read(path: str) -> bytes | None:
    """The file, or None if it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def canonical(value: dict[str, Any]) -> str:
    """Equal for equal JSON (Python holds 1 and true for equal)."""
    return json.dumps(value, sort_keys=True)


def write(module: AnsibleModule, path: str, data: bytes, exists: bool) -> dict[str, Any]:
    """Validates and replaces the file; owner and mode of an existing one stay."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=".gpustrap-", suffix=".json", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        validate(module, path, scratch)
        kept = {"backup": module.backup_local(path)} if exists else {}
        os.chmod(scratch, 0o644)
        module.atomic_move(scratch, path)
    finally:
        if os.path.exists(scratch):
            os.unlink(scratch)
    return kept


def validate(module: AnsibleModule, path: str, scratch: str) -> None:
    """Asks docker itself, with its unit's options: a key set both there and in the file keeps it from starting."""
    _rc, shown, _err = module.run_command(["systemctl", "show", "docker.service", "--property=ExecStart"])
    found = UNIT_ARGV.search(shown)
    argv = [word for word in shlex.split(found.group(1)) if not word.startswith("$")] if found else ["dockerd"]
    rc, out, err = module.run_command([*argv, "--validate", "--config-file", scratch])
    if rc != 0 and "unknown flag: --validate" in out + err:
        rc, out, err = validate_old(module, argv, scratch)
    if rc != 0:
        said = (err or out).strip().replace(scratch, path)
        module.fail_json(msg="docker refuses the merged {0}, which was left as it is: {1}".format(path, said))


def validate_old(module: AnsibleModule, argv: list[Any], scratch: str) -> tuple[Any, ...]:
    """The same of docker before 23, which has no --validate: it reads its settings, then stops at a taken pid file.

    The time limit is for a daemon that would not stop there.
    """
    with tempfile.NamedTemporaryFile("w", dir=module.tmpdir) as taken:
        taken.write(str(os.getpid()))
        taken.flush()
        started = ["timeout", "20", *argv, "--pidfile", taken.name, "--config-file", scratch]
        rc, out, err = module.run_command(started)
    return (0, out, err) if "pid file found" in out + err else (rc or 1, out, err)


if __name__ == "__main__":
    main()
