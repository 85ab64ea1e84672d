"""Ansible module: may docker be installed here? Reads only; names every obstacle at once."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpustrap_json import BadJsonError, parse
from ansible.module_utils.gpustrap_snap import SNAP, SNAP_PATHS

DOCUMENTATION = r"""
module: gpustrap_docker_preflight
short_description: Refuse what would lose something of the user's when docker is installed
description:
  - Looks for docker's snap, packages that conflict, a docker put there by hand, an unreadable daemon.json, users that
    do not exist, a package newer than the planned one, and too little space. Changes nothing, also outside check mode.
options:
  packages: {type: list, elements: dict, required: true, description: Planned packages, each with name and version.}
  conflicting_packages: {type: list, elements: str, default: [], description: Packages that may not be installed.}
  users: {type: list, elements: str, default: [], description: Users that will join group docker.}
  replace_snap: {type: bool, default: false, description: Whether docker's snap may be removed.}
  daemon_json: {type: path, default: /etc/docker/daemon.json, description: The file that will be merged into.}
  minimum_free_mib: {type: int, default: 1024, description: Space needed when packages are to be installed.}
author: gpustrap
"""
EXAMPLES = r"""
- gpustrap_docker_preflight:
    packages: [{name: docker.io, version: 26.1.5+dfsg1-9}]
"""
RETURN = r"""
install: {type: list, returned: success, description: "What apt is to install now, as name=version."}
would_follow: {type: list, returned: success, description: In check mode, what apt cannot install or even look up yet.}
refresh: {type: bool, returned: success, description: apt's lists must be fetched first.}
snap: {type: bool, returned: success, description: Docker's snap is there.}
claims: {type: list, returned: success, description: One resource per planned package.}
"""

BY_HAND = ("/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd")


def main() -> None:
    """Collects all problems and fails once, or tells the role what is there."""
    package = {"type": "dict", "options": {"name": {"required": True}, "version": {"required": True}}}
    module = AnsibleModule(
        argument_spec={
            "packages": dict(package, type="list", elements="dict", required=True),
            "conflicting_packages": {"type": "list", "elements": "str", "default": []},
            "users": {"type": "list", "elements": "str", "default": []},
            "replace_snap": {"type": "bool", "default": False},
            "daemon_json": {"type": "path", "default": "/etc/docker/daemon.json"},
            "minimum_free_mib": {"type": "int", "default": 1024},
        },
        supports_check_mode=True,
    )
    if not os.path.exists("/usr/bin/dpkg-query"):
        module.fail_json(msg="this node has no dpkg; the docker role knows Debian and Ubuntu")
    planned = {one["name"]: one["version"] for one in module.params["packages"]}
    found = versions(module, list(planned) + module.params["conflicting_packages"])
    installed = all(found.get(name) == version for name, version in planned.items())
    snap = any(os.path.exists(path) for path in SNAP_PATHS)
    problems = (
        snap_problems(snap, module.params["replace_snap"])
        + package_problems(module, planned, found)
        + user_problems(module.params["users"])
        + daemon_problems(module.params["daemon_json"])
        + ([] if installed else space_problems(module.params["minimum_free_mib"]))
    )
    if problems:
        module.fail_json(msg="\n".join(problems))
    missing = sorted("{0}={1}".format(*one) for one in planned.items() if found.get(one[0]) != one[1])
    known = installed or installable(module, planned)
    module.exit_json(
        changed=False,
        install=missing if known or not module.check_mode else [],
        would_follow=missing if module.check_mode and not known else [],
        refresh=not known,
        snap=snap,
        claims=[{"kind": "package", "name": name} for name in planned],
    )


def versions(module: AnsibleModule, names: list[Any]) -> dict[str, Any]:
    """Installed packages of those names, with their versions."""
    if not names:
        return {}
    argv = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Version}\n", *sorted(set(names))]
    _rc, out, _err = module.run_command(argv)  # rc 1 only says that some are not installed
    rows = [line.split("\t") for line in out.splitlines()]
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0][1:2] not in ("n", "c")}


def installable(module: AnsibleModule, planned: dict[str, Any]) -> bool:
    """Whether apt knows every planned version, and Ansible's apt module can run."""
    if importlib.util.find_spec("apt_pkg") is None:
        return False
    _rc, out, _err = module.run_command(["apt-cache", "madison", *sorted(planned)])
    known = {tuple(cell.strip() for cell in line.split("|")[:2]) for line in out.splitlines()}
    return set(planned.items()) <= known


def snap_problems(snap: bool, replace: bool) -> list[Any]:
    """Docker's snap sees neither /etc/docker nor the NVIDIA runtime."""
    if not snap or replace:
        return []
    return [SNAP]


def package_problems(module: AnsibleModule, planned: dict[str, Any], found: dict[str, Any]) -> list[Any]:
    """Packages in the way, versions that would go backwards, and a docker that no package owns."""
    problems = []
    in_the_way = sorted(set(module.params["conflicting_packages"]) & set(found))
    if in_the_way:
        problems.append(
            "in the way: {0}. gpustrap removes nothing it did not install. Plan with the other"
            " gpustrap_docker_origin, or remove them on the node: apt-get remove {1}".format(
                ", ".join("{0} {1}".format(name, found[name]) for name in in_the_way), " ".join(in_the_way)
            )
        )
    for name, version in sorted(planned.items()):
        there = found.get(name)
        if there and module.run_command(["dpkg", "--compare-versions", there, "gt", version])[0] == 0:
            said = "{0} {1} is newer than the planned {2}; run gpustrap plan --upgrade NODE, then apply"
            problems.append(said.format(name, there, version))
    for path in BY_HAND:
        owned = not os.path.exists(path) or module.run_command(["dpkg-query", "-S", os.path.realpath(path)])[0] == 0
        if not owned and module.run_command(["dpkg-query", "-S", path])[0] != 0:
            problems.append("{0} belongs to no package: docker was installed by hand; remove it first".format(path))
    return problems


def user_problems(users: list[Any]) -> list[Any]:
    """Users are never created on the way."""
    return ["gpustrap_docker_users: no user {0} on this node".format(name) for name in users if not _user(name)]


def _user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def daemon_problems(path: str) -> list[Any]:
    """A daemon.json that cannot be read is left alone, before anything else is touched."""
    try:
        with open(path, "rb") as file:
            parse(file.read())
    except FileNotFoundError:
        return []
    except BadJsonError as error:
        return ["{0} is not valid JSON: {1}. It was left as it is; repair it, then apply again".format(path, error)]
    except OSError as error:
        return ["{0} cannot be read: {1}".format(path, json.dumps(error.strerror))]
    return []


def space_problems(minimum: int) -> list[Any]:
    """One sentence per file system on which dpkg would stop half-way."""
    problems, seen = [], set()
    for path in ("/usr", "/var/cache/apt/archives", "/var/lib"):
        if not os.path.isdir(path) or os.stat(path).st_dev in seen:
            continue
        seen.add(os.stat(path).st_dev)
        room = os.statvfs(path)
        free = room.f_bavail * room.f_frsize >> 20
        if free < minimum:
            problems.append("{0}: {1} MiB free, {2} needed to install docker".format(path, free, minimum))
        if room.f_files and room.f_favail < 10000:
            problems.append("{0}: {1} inodes free, 10000 needed to install docker".format(path, room.f_favail))
    return problems


if __name__ == "__main__":
    main()
