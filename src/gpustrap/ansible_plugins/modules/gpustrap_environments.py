#!/usr/bin/python
"""Ansible module: the environments of frameworks are there, as their locks have them. See DOCUMENTATION."""

from __future__ import annotations

import errno
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_environment_build import Settings, build, check_room, group_of
from ansible.module_utils.gpustrap_environment_place import (
    BUILD,
    KEEP,
    SCRATCH,
    SWITCH,
    BuildError,
    alone,
    decide,
    prune,
    remove,
    switch,
    trim,
)
from ansible.module_utils.gpustrap_kernelspec import FILE as KERNEL
from ansible.module_utils.gpustrap_kernelspec import differs, write
from ansible.module_utils.gpustrap_node.environments import ID_LENGTH, PREFIX
from ansible.module_utils.gpustrap_node.host import Host
from ansible.module_utils.gpustrap_uv import ensure

DOCUMENTATION = r"""
module: gpustrap_environments
short_description: Build environments of frameworks from their lock files
description:
  - Each environment is built in a directory of its own beside the one in use, checked and imported as an ordinary user,
    and then switched to by one link. The one before stays, older ones go unless a process has them open. A half-built
    one never counts.
  - The action of the same name first asks the node what is missing, and sends lock files only for that. Where nothing
    is, neither uv, pip nor conda is started.
  - One that somebody changed by hand is built anew beside it. What fails leaves what is in use as it is.
  - Users' own environments, the system's Python and its settings are never touched.
options:
  environments:
    description: The environments, as the lock has them (C(ml_environments_environments)).
    type: list
    elements: dict
    required: true
  prefix:
    description: Where they are.
    type: path
    default: /opt/gpustrap/envs
  uv:
    description: Version, wheel and its SHA-256 of the uv that builds them.
    type: dict
    default: {}
  index:
    description: The package index.
    type: str
    default: ""
  python_mirror:
    description: Mirror of python-build-standalone, for environments with a Python of uv's own.
    type: str
    default: ""
  ca_bundle:
    description: File on the node with the CA certificates to trust; empty for the system's.
    type: str
    default: ""
  conda:
    description: Where conda is, for environments that it makes.
    type: path
    default: /opt/conda
  locks:
    description: Text of lock files by the name of the environment; the action fills it in. Without, nothing is built.
    type: dict
    default: {}
  base:
    description: Directory for uv and its Pythons.
    type: path
    default: /opt/gpustrap
  cache:
    description: Directory for downloads, where it is on the file system of O(prefix); else they are kept below that.
    type: path
    default: /var/cache/gpustrap
  kernels:
    description: Where Jupyter looks for kernels.
    type: path
    default: /usr/local/share/jupyter/kernels
  wait:
    description: Seconds to wait for another run that builds environments.
    type: int
    default: 300
  timeout:
    description: Seconds that one step of a build may take.
    type: int
    default: 7200
author: [gpustrap]
attributes:
  check_mode:
    support: full
    description: Says what would be built.
"""
EXAMPLES = r"""
- name: Ensure the environments of the lock are there
  gpustrap_environments:
    environments: "{{ ml_environments_environments }}"
    uv: "{{ ml_environments_uv }}"
"""
RETURN = r"""
needed: {type: list, returned: success, description: Environments whose lock files are needed.}
done: {type: list, returned: success, description: "What was, or in check mode would be, done, in words."}
claims: {type: list, returned: success, description: The environments and kernels.}
"""
ARGUMENTS = {
    "environments": {"type": "list", "elements": "dict", "required": True},
    "prefix": {"type": "path", "default": PREFIX},
    "uv": {"type": "dict", "default": {}},
    "index": {"type": "str", "default": ""},
    "python_mirror": {"type": "str", "default": ""},
    "ca_bundle": {"type": "str", "default": ""},
    "conda": {"type": "path", "default": "/opt/conda"},
    "locks": {"type": "dict", "default": {}},
    "base": {"type": "path", "default": "/opt/gpustrap"},
    "cache": {"type": "path", "default": "/var/cache/gpustrap"},
    "kernels": {"type": "path", "default": "/usr/local/share/jupyter/kernels"},
    "wait": {"type": "int", "default": 300},
    "timeout": {"type": "int", "default": 7200},
}
FULL = os.strerror(errno.ENOSPC)


def main() -> None:
    """Look, and where something is missing and its lock file is here, do it."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    try:
        work = look(given)
        needed = sorted(job.name for job in work if job.need.action == BUILD)
        waiting = [name for name in needed if name not in given["locks"]]
        changed, done = bool(work), [words for job in work for words in job.words()]
        problems = []
        if work and not module.check_mode and not waiting:
            problems = work_off(given)
    except BuildError as error:
        module.fail_json(msg=str(error))
    if problems:
        module.fail_json(msg="\n".join(problems), changed=True)
    diff = {"prepared": "".join("would follow: {0}\n".format(words) for words in done)} if module.check_mode else {}
    module.exit_json(changed=changed, needed=waiting, done=done, claims=claims(given), diff=diff)


class Job:
    """What one environment needs."""

    def __init__(self, given: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Look at it; refuses what stands in the way before anything is done."""
        prefix, name = given["prefix"], wanted["name"]
        self.wanted, self.name = wanted, name
        self.place = os.path.join(prefix, name)
        self.group = group_of(wanted["users"])
        self.need = decide(Host("/"), prefix, name, wanted["digest"][:ID_LENGTH])
        self.kernel = differs(given["kernels"], prefix, name, wanted["jupyter"])
        self.mode = self.need.action == KEEP and not self._may_be_used()

    def _may_be_used(self) -> bool:
        status = os.stat(self.place)
        group = 0 if self.group == -1 else self.group
        return status.st_mode & 0o7777 == self._mode() and (os.geteuid() != 0 or status.st_gid == group)

    def _mode(self) -> int:
        return 0o755 if self.group == -1 else 0o750

    def give(self) -> None:
        """Let those use it who may."""
        os.makedirs(self.place, exist_ok=True)
        os.chmod(self.place, self._mode())
        if os.geteuid() == 0:
            os.chown(self.place, 0, 0 if self.group == -1 else self.group)

    def words(self) -> list[str]:
        """What there is to do."""
        wanted, said = self.wanted, []
        if self.need.action == BUILD:
            what = " ".join(word for word in (wanted["framework"], wanted["version"], wanted["variant"]) if word)
            said.append("environment {0} built ({1}, {2})".format(self.name, what, self.need.why))
        elif self.need.action == SWITCH:
            said.append("environment {0} switched to a build that {1}".format(self.name, self.need.why))
        if self.need.leftovers:
            said.append("environment {0}: {1} half-built removed".format(self.name, len(self.need.leftovers)))
        if self.need.old:
            said.append("environment {0}: {1} old removed".format(self.name, len(self.need.old)))
        if self.mode:
            said.append("environment {0} for {1}".format(self.name, wanted["users"]))
        if self.kernel:
            said.append("Jupyter kernel {0} {1}".format(self.name, "written" if wanted["jupyter"] else "removed"))
        return said


def look(given: dict[str, Any]) -> list[Job]:
    """The environments that need something; every reason against it at once.

    Raises:
        BuildError: One or more of them cannot be as wanted.
    """
    jobs, problems = [], []
    for wanted in given["environments"]:
        try:
            job = Job(given, wanted)
        except BuildError as error:
            problems.append("environment {0}: {1}".format(wanted["name"], error))
            continue
        if job.words():
            jobs.append(job)
    if problems:
        raise BuildError("\n".join(problems))
    return jobs


def work_off(given: dict[str, Any]) -> list[str]:
    """Do it all, under one lock; what could not be done, one each."""
    prefix, before = given["prefix"], os.umask(0o022)
    try:
        os.makedirs(prefix, mode=0o755, exist_ok=True)
        with alone(prefix, given["wait"]) as lock:
            return _each(given, lock)
    except OSError as error:
        return ["{0}: {1}".format(error.filename or prefix, error.strerror)]
    finally:
        os.umask(before)


def _each(given: dict[str, Any], lock: int) -> list[str]:
    problems = []
    for job in look(given):  # again: another run may just have done it
        try:
            _one(given, job, lock)
        except (BuildError, OSError) as error:
            in_use = "; the one in use was not touched" if os.path.islink(os.path.join(job.place, "current")) else ""
            problems.append("environment {0} was not built{1}\n{2}".format(job.name, in_use, error))
            if FULL in str(error):
                trim(_cache(given))  # else what was fetched stays for the next try
    return problems


def _one(given: dict[str, Any], job: Job, lock: int) -> None:
    for path in job.need.leftovers:
        remove(path)
    if job.need.action == BUILD:
        if job.name not in given["locks"]:
            raise BuildError("it changed while another run was waited for: run it again")
        path = os.path.join(job.place, job.need.directory)
        check_room(given["prefix"], job.wanted)
        settings = _settings(given, job.wanted, lock, path + SCRATCH)
        job.give()
        build(settings, job.wanted, given["locks"][job.name], path)
    job.give()
    if job.need.action != KEEP:
        switch(job.place, job.need.directory)
    if prune(given["prefix"], job.name):
        trim(_cache(given))
    if job.kernel:
        write(given["kernels"], given["prefix"], job.name, job.wanted["jupyter"])


def _settings(given: dict[str, Any], wanted: dict[str, Any], lock: int, scratch: str) -> Settings:
    """Where things are; uv is fetched where this environment is the first that needs it."""
    base, uv = given["base"], ""
    if wanted["engine"] == "uv":
        uv = ensure(os.path.join(base, "uv"), given["uv"], given["index"], given["ca_bundle"])
    return Settings(
        prefix=given["prefix"],
        uv=uv,
        pythons=os.path.join(base, "python"),
        package_index=given["index"],
        python_mirror=given["python_mirror"],
        ca_bundle=given["ca_bundle"],
        conda=os.path.join(given["conda"], "bin", "conda"),
        cache=_cache(given),
        scratch=scratch,
        lock=lock,
        timeout=given["timeout"],
    )


def _cache(given: dict[str, Any]) -> str:
    """Where downloads are unpacked to: files of an environment are further names of those, not copies."""
    os.makedirs(given["cache"], mode=0o755, exist_ok=True)
    same = os.stat(given["cache"]).st_dev == os.stat(given["prefix"]).st_dev
    return str(given["cache"] if same else os.path.join(given["prefix"], ".cache"))


def claims(given: dict[str, Any]) -> list[dict[str, str]]:
    """What these environments are made of, for the ledger."""
    found = []
    for wanted in given["environments"]:
        found.append({"kind": "environment", "name": os.path.join(given["prefix"], wanted["name"])})
        if wanted["jupyter"]:
            path = os.path.join(given["kernels"], wanted["name"], KERNEL)
            found.append({"kind": "file", "name": path})
    return found


if __name__ == "__main__":
    main()
