"""Makes a site: inventory, commented variables, what git must ignore, a README and a CI example."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from gpustrap.content import PACKAGE, content_root
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.site import Site
from gpustrap.site.files import write_atomically
from gpustrap.site.inventory import checkout_problem, is_checkout

NO_HOSTS = "all:\n  hosts: {}\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_%-]*")


@dataclass(frozen=True, slots=True)
class Created:
    """What was made and what was there already; paths relative to the site."""

    written: tuple[str, ...]
    kept: tuple[str, ...]


def create_site(path: Path, hosts: Mapping[str, str] | None = None, user: str | None = None) -> Created:
    """Make a site, or complete one. No existing file is touched.

    Args:
        path: The directory; made where missing.
        hosts: Inventory name -> address.
        user: ``ansible_user`` for all of them.

    Raises:
        GpustrapError: The directory cannot be made, a host is no host, or its inventory exists already.
    """
    site, hosts = Site(path), hosts or {}
    _refuse(site, hosts, user)
    example, template = content_root() / "inventory" / "example", PACKAGE / "site" / "template"
    files = {
        site.inventory / "hosts.yml": _with_hosts((example / "hosts.yml").read_text(encoding="utf-8"), hosts, user),
        site.inventory / "group_vars" / "all.yml": (example / "group_vars" / "all.yml").read_text(encoding="utf-8"),
        site.root / ".gitignore": (template / "gitignore").read_text(encoding="utf-8"),
        site.root / "README.md": (template / "README.md").read_text(encoding="utf-8"),
        site.root / "ci-example.yml": (template / "ci-example.yml").read_text(encoding="utf-8"),
    }
    written: list[str] = []
    kept: list[str] = []
    try:
        site.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file, text in files.items():
            there = file.exists() or file.is_symlink()
            (kept if there else written).append(str(file.relative_to(site.root)))
            if not there:
                write_atomically(file, text, mode=0o644)
    except OSError as error:
        raise GpustrapError(
            Problem(
                code="site-not-writable",
                subject=f"directory {path}",
                message="the site cannot be made there",
                exit_code=ExitCode.USAGE,
                evidence=str(error),
                remedy="gpustrap init another-directory",
            )
        ) from error
    return Created(tuple(written), tuple(kept))


def _with_hosts(text: str, hosts: Mapping[str, str], user: str | None) -> str:
    if not hosts and not user:
        return text
    group: dict[str, object] = {"vars": {"ansible_user": user}} if user else {}
    group["hosts"] = {name: {"ansible_host": address} for name, address in hosts.items()}
    return text.replace(NO_HOSTS, str(yaml.safe_dump({"all": group}, sort_keys=False)))


def _refuse(site: Site, hosts: Mapping[str, str], user: str | None) -> None:
    problems = [checkout_problem(site)] if is_checkout(site) else []
    problems += [
        Problem(
            code="bad-host",
            subject=f"--host {name}={address}",
            message="that is no name and address",
            exit_code=ExitCode.USAGE,
            remedy="write --host n1=192.0.2.11",
        )
        for name, address in hosts.items()
        if not (_NAME.fullmatch(name) and _ADDRESS.fullmatch(address))
    ]
    inventory = site.inventory / "hosts.yml"
    if (hosts or user) and inventory.exists():
        problems.append(
            Problem(
                code="inventory-exists",
                subject=str(inventory),
                message="it exists, and init changes no file that does",
                exit_code=ExitCode.USAGE,
                remedy=f"add the nodes to {inventory} yourself",
            )
        )
    if problems:
        raise GpustrapError(*problems)
