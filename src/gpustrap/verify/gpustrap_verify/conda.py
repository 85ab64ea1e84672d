"""Checks of conda: the locked version, and an environment that really can be made."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

from .node import ENVIRONMENT, Finding, Node, Result, failed, passed
from .remedies import Remedy

PREFIX = "gpustrap-verify-"
PLACE = "/var/tmp"  # noqa: S108 - on disk, where an environment fits; the directory made there is 0700
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def version(node: Node, args: dict[str, Any]) -> Finding:
    """Conda runs and is the version that the locked installer brings.

    Args:
        node: The node.
        args: ``prefix``; ``version``: of the installer (``25.3.1-0``, ``py313_25.5.1-0``), which begins with conda's.
    """
    answer = _conda(node, args, "--version", timeout=60)
    if not answer.ok:
        return failed(f"{args['prefix']}/bin/conda does not run", answer.words, Remedy.APPLY)
    found, locked = _VERSION.search(answer.out), _VERSION.search(args["version"])
    if not found or not locked:
        return failed("the version cannot be read", f"locked {args['version']}, conda says {answer.out}", Remedy.APPLY)
    if found.group() != locked.group():
        return failed(f"conda is {found.group()}, locked is {locked.group()}", remedy=Remedy.APPLY)
    return passed(version=found.group())


def environment(node: Node, args: dict[str, Any]) -> Finding:
    """An environment is made from the locked channels and a program of it runs; nothing of it stays.

    Everything conda writes (environment, package cache, list of environments) goes to a temporary directory.
    Packages that are in the installation's cache already are linked, not fetched.

    Args:
        node: The node.
        args: ``prefix``, ``channels``, ``packages`` to install, ``program`` and its arguments (relative to the
            environment), ``proxy``: environment variables.
    """
    remove_leftovers(node)
    try:
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=str(node.path(PLACE))))
    except OSError as error:
        return failed(f"no temporary directory can be made in {PLACE}", str(error), Remedy.MAKE_ROOM)
    try:
        finding = _make_environment(node, args, place)
    finally:
        shutil.rmtree(str(place), ignore_errors=True)
    if place.exists():
        return failed(f"{place} cannot be removed", remedy=Remedy.REMOVE_LEFTOVERS)
    return finding


def _make_environment(node: Node, args: dict[str, Any], place: Path) -> Finding:
    env = place / "env"
    channels = [word for channel in args["channels"] for word in ("--channel", channel)]
    create = ["create", "--yes", "--quiet", "--prefix", str(env), "--override-channels", *channels, *args["packages"]]
    made = _conda(node, args, *create, timeout=420, place=place)
    if not made.ok:
        return failed("no environment can be made", made.words, Remedy.CONDA_BY_HAND)
    token = secrets.token_hex(16)
    program, *rest = [word.replace("TOKEN", token) for word in args["program"]]
    ran = node.run(str(env / program), *rest)
    if not ran.ok or token not in ran.out.split():
        return failed("an environment was made, but its program does not run", ran.words, Remedy.CONDA_BY_HAND)
    return passed(f"with {', '.join(args['packages'])} from the locked channels")


def _conda(node: Node, args: dict[str, Any], *argv: str, timeout: float, place: Path | None = None) -> Result:
    variables = {**ENVIRONMENT, **args.get("proxy", {})}
    if place:
        # The first package cache that is writable takes what is fetched; HOME holds the list of environments.
        variables["HOME"] = variables["TMPDIR"] = str(place)
        variables["CONDA_PKGS_DIRS"] = f"{place}/pkgs,{args['prefix']}/pkgs"
    return node.run(f"{args['prefix']}/bin/conda", *argv, timeout=timeout, environment=variables)


def remove_leftovers(node: Node) -> None:
    """Remove what a killed run left. Only root's own directories: anybody may create names in that place."""
    with contextlib.suppress(OSError):
        for left in node.path(PLACE).glob(PREFIX + "*"):
            found = left.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                shutil.rmtree(str(left), ignore_errors=True)
