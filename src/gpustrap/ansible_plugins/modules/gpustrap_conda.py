"""Ansible module: a conda, installed by a verified installer into a prefix of ours."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_native
from ansible.module_utils.gpustrap_conda_prefix import FOREIGN, HALF_MADE, Prefix, executable, room, work_directory
from ansible.module_utils.urls import open_url

DOCUMENTATION = r"""
module: gpustrap_conda
short_description: Install conda into a prefix with a verified installer
description:
  - Downloads Miniforge's or Miniconda's installer to a directory with room from which programs may run, verifies its
    SHA-256 and runs it in batch mode. No user's shell is touched. A prefix that gpustrap did not make is refused; one
    whose first install was cut off is made anew; a newer installer updates an existing one and keeps its environments.
options:
  installer_url: {type: str, required: true, description: Where the installer is.}
  installer_sha256: {type: str, required: true, description: What it must be.}
  version: {type: str, required: true, description: Its version, for the marker and messages.}
  prefix: {type: path, required: true, description: Where conda goes.}
  minimum_free_mib: {type: int, default: 1024, description: Space needed at the prefix.}
  timeout: {type: int, default: 1800, description: Seconds the installer may take.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_conda:
    installer_url: https://github.com/conda-forge/miniforge/releases/download/25.3.1-0/Miniforge3-25.3.1-0-Linux-x86_64.sh
    installer_sha256: 376b160ed8130820db0ab0f3826ac1fc85923647f75c1b8231166e3d559ab768
    version: 25.3.1-0
    prefix: /opt/conda
"""
RETURN = r"""
present: {type: bool, returned: success, description: Conda is there now.}
claims: {type: list, returned: success, description: The files that make the prefix ours.}
"""

INODES = 40000
SURROUNDINGS = ("CONDA_", "_CE_", "PYTHON", "MAMBA_", "LD_")


def main() -> None:
    """Nothing to do, or download, verify, run, mark complete."""
    module = AnsibleModule(
        argument_spec={
            "installer_url": {"type": "str", "required": True},
            "installer_sha256": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "prefix": {"type": "path", "required": True},
            "minimum_free_mib": {"type": "int", "default": 1024},
            "timeout": {"type": "int", "default": 1800},
        },
        supports_check_mode=True,
    )
    prefix = Prefix(module.params["prefix"])
    changed = prefix.installer() != module.params["installer_sha256"]
    if changed:
        refuse(module, prefix)
        if not module.check_mode:
            install(module, prefix)
    claims = [{"kind": "file", "name": path} for path in (prefix.conda, prefix.complete)]
    present = os.access(prefix.conda, os.X_OK)
    module.exit_json(changed=changed, present=present, version=module.params["version"], claims=claims)


def refuse(module: AnsibleModule, prefix: Prefix) -> None:
    """Everything that stands in the way, before anything is downloaded."""
    problems = []
    if prefix.state() == FOREIGN:
        problems.append(
            "{0} is there and gpustrap did not make it. Set gpustrap_conda_prefix to another directory, or move it"
            " away on the node".format(prefix.path)
        )
    if not executable(prefix.path):
        problems.append("{0}: the file system is mounted noexec or read-only".format(prefix.path))
    free, inodes = room(prefix.path)
    if free < module.params["minimum_free_mib"]:
        problems.append("{0}: {1} MiB free, {2} needed".format(prefix.path, free, module.params["minimum_free_mib"]))
    if inodes is not None and inodes < INODES:
        problems.append("{0}: {1} inodes free, {2} needed".format(prefix.path, inodes, INODES))
    if problems:
        module.fail_json(msg="\n".join(problems))


def install(module: AnsibleModule, prefix: Prefix) -> None:
    """One whole install. A first one that fails leaves nothing behind; a failed update stays marked half-made."""
    work = work_directory(["/var/tmp", os.path.dirname(prefix.path), "/var/cache", tempfile.gettempdir()], 512)  # noqa: S108
    if not work:
        module.fail_json(msg="no directory with 512 MiB free from which programs may run (/var/tmp, /var/cache, /tmp)")
    old_mask = os.umask(0o022)  # users must be able to read it, whatever root's mask is
    scratch = tempfile.mkdtemp(prefix="gpustrap-conda-", dir=work)
    try:
        script = download(module, scratch)
        fresh = prefix.half_made_is_fresh() if prefix.state() == HALF_MADE else not os.path.exists(prefix.complete)
        if fresh:
            prefix.clear()
        prefix.begin(fresh)
        said = run(module, script, prefix, scratch)
        if said:
            if fresh:
                prefix.clear()
                os.unlink(prefix.beside)
            module.fail_json(msg="the installer of conda failed: {0}".format(said))
        prefix.finish(module.params["installer_sha256"], module.params["version"])
    finally:
        os.umask(old_mask)
        shutil.rmtree(scratch, ignore_errors=True)


def download(module: AnsibleModule, scratch: str) -> str:
    """The installer's path, its checksum verified."""
    url, wanted = module.params["installer_url"], module.params["installer_sha256"]
    path, digest = os.path.join(scratch, "installer.sh"), hashlib.sha256()
    try:
        answer = open_url(url, timeout=60, http_agent="gpustrap")
        with open(path, "wb") as file:
            for block in iter(lambda: answer.read(1 << 20), b""):
                digest.update(block)
                file.write(block)
    except Exception as error:  # noqa: BLE001 - urllib's, ssl's and socket's errors have no common base
        module.fail_json(msg="the installer at {0} cannot be had: {1}".format(url, to_native(error)))
    if digest.hexdigest() != wanted:
        module.fail_json(
            msg="the installer at {0} has SHA-256 {1}, the plan says {2}; it was not run".format(
                url, digest.hexdigest(), wanted
            )
        )
    return path


def run(module: AnsibleModule, script: str, prefix: Prefix, scratch: str) -> str:
    """Runs the installer and then conda; what went wrong, or nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SURROUNDINGS)}
    environment = dict(kept, HOME=scratch, TMPDIR=scratch)  # its caches and settings go with the scratch directory
    argv = [module.get_bin_path("bash") or "/bin/sh", script, "-b", "-p", prefix.path]
    argv += ["-u"] if os.path.isdir(prefix.path) else []
    rc, said = timed(argv, environment, module.params["timeout"])
    if rc == 0:
        rc, said = timed([prefix.conda, "--version"], environment, 120)
    return "" if rc == 0 else "exit status {0}: {1}".format(rc, said.strip()[-1500:])


def timed(argv: list[Any], environment: dict[str, Any], timeout: int) -> tuple[Any, ...]:
    """(exit status, output). The whole process group ends with the time."""
    with subprocess.Popen(
        argv,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            out = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return 124, "no end after {0} s".format(timeout)
        return process.returncode, to_native(out, errors="surrogate_or_replace")


if __name__ == "__main__":
    main()
