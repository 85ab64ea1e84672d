"""The nodes of a site, read as Ansible reads them, with everything that is wrong reported together."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from gpustrap.content import ansible_config
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.node import Endpoint, Node
from gpustrap.model.request import Request
from gpustrap.model.roles import PENDING_ROLES, ROLES
from gpustrap.model.site import Site
from gpustrap.site import cache
from gpustrap.site.meant import PREFIX
from gpustrap.site.wrong import Finding, bad_values, explain, from_failure, without_prefix

ROLE_PREFIXES = tuple(f"{role}_" for role in (*ROLES, *PENDING_ROLES))
# Words that the variables of other roles have, too: nobody is told to rename these.
EVERYDAY = {"hostname", "timezone", "packages", "proxy", "policy", "gpu", "docker", "conda", "simulated"}
WISHES = tuple(name for name in Request.model_fields if not name.startswith(ROLE_PREFIXES) and name not in EVERYDAY)
VAULT_VARIABLE = "GPUSTRAP_VAULT_PASSWORD_FILE"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")  # it becomes the name of a directory of the site
SSH_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
LOCAL = ("local", "ansible.builtin.local")
LOCALHOST = "localhost"  # this machine, as in Ansible, where the inventory has no node of that name
TIMEOUT = 300  # seconds; 10,000 hosts of YAML take about 20


def load_nodes(site: Site, patterns: Sequence[str] | None = None, limit: str | None = None) -> tuple[Node, ...]:
    """The nodes that match, in the inventory's order.

    Args:
        site: The site.
        patterns: Node names, groups or Ansible host patterns; all nodes when empty.
        limit: An Ansible host pattern that narrows them down.

    Raises:
        GpustrapError: With every problem of the inventory that was found, exit code 2.
    """
    require_site(site)
    answer = _ask(site, list(patterns or ()), limit)
    hosts = answer["hosts"]
    findings = [from_failure(f) for f in answer["failures"]]
    for host in hosts:
        findings += _check(host)
    findings += _same_address(hosts)
    problems = explain(findings, site, names=(*answer["all_hosts"], *answer["all_groups"]))
    if not problems and not hosts:
        problems = (_nothing(site, answer["all_hosts"], patterns, limit),)
    if problems:
        raise GpustrapError(*problems)
    return tuple(_node(host, site) for host in hosts)


def this_machine(site: Site) -> str:
    """The name of the node that this machine is: the one whose ``ansible_connection`` is ``local``.

    In a site without nodes it is ``localhost``, which needs no entry. In one with nodes it needs one: their variables
    were not written for the machine that gpustrap happens to run on.

    Raises:
        GpustrapError: It is not plain which node that is.
    """
    require_site(site)
    answer = _ask(site, [], None)
    found = [host["name"] for host in answer["hosts"] if host["vars"].get("ansible_connection") in LOCAL]
    if len(found) == 1:
        return str(found[0])
    if found or answer["all_hosts"]:
        raise GpustrapError(_not_plain(site, found, answer["all_hosts"]))
    return LOCALHOST


def has_inventory(site: Site) -> bool:
    """Whether a directory is a site, as far as nodes go."""
    return site.inventory.is_dir() and not is_checkout(site)


def require_site(site: Site) -> None:
    """Refuse a directory that is no site.

    Raises:
        GpustrapError: no-site.
    """
    if is_checkout(site):
        raise GpustrapError(checkout_problem(site))
    if not site.inventory.is_dir():
        raise GpustrapError(_no_site(site))


def _ask(site: Site, patterns: list[str], limit: str | None) -> dict[str, Any]:
    question = {
        "inventory": str(site.inventory.resolve()),
        "patterns": patterns,
        "limit": limit,
        "vault_password_file": os.environ.get(VAULT_VARIABLE),
        "role_prefixes": ROLE_PREFIXES,
        "wishes": WISHES,
    }
    key = cache.key(site, question)
    known = cache.load(site, key)
    if known is not None:
        return known
    answer = _run_child(question)
    if not answer["failures"]:
        cache.save(site, key, answer)
    return answer


def _run_child(question: dict[str, Any]) -> dict[str, Any]:
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ansible_config()),
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
    }
    child = [sys.executable, "-P", "-m", "gpustrap.site.inventory_child"]  # -P: import nothing from where the user is
    try:
        done = subprocess.run(
            child,
            input=json.dumps(question).encode(),
            capture_output=True,
            env=environment,
            timeout=TIMEOUT,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.SubprocessError, json.JSONDecodeError) as error:
        words = getattr(error, "stderr", None) or b""
        raise GpustrapError(
            Problem(
                code="inventory-unreadable",
                subject=f"inventory {question['inventory']}",
                message="Ansible ended while it read the inventory",
                exit_code=ExitCode.USAGE,
                evidence=words.decode(errors="replace")[-2000:] or str(error),
                remedy=f"ansible-inventory -i {shlex.quote(question['inventory'])} --list",
            )
        ) from error
    return answer


def _check(host: dict[str, Any]) -> list[Finding]:
    """What is wrong with the values of one host."""
    name, values, origins = host["name"], host["vars"], host["origins"]
    found = [] if NAME.fullmatch(name) else [Finding("bad-node-name", name)]
    if values.get("ansible_connection", "ssh") not in {"ssh", "ansible.builtin.ssh", *LOCAL}:
        where, text = origins["ansible_connection"], str(values["ansible_connection"])
        found.append(Finding("connection-not-supported", name, where, "ansible_connection", text))
    port = values.get("ansible_port")
    if port is not None and not (str(port).isdecimal() and 0 < int(port) < 65536):
        found.append(Finding("bad-value", name, origins.get("ansible_port", ""), "ansible_port", "is no port number"))
    for variable in SSH_ARGUMENTS:
        _, why = _words(values, variable)
        if why:
            text = f"cannot be split into words: {why}"
            found.append(Finding("bad-value", name, origins.get(variable, ""), variable, text))
    return found + check_request(name, values, origins)


def check_request(name: str, values: Mapping[str, Any], origins: Mapping[str, str]) -> list[Finding]:
    """What is wrong with the request of one host.

    Args:
        name: Inventory name.
        values: Its variables; only ``gpustrap_*`` count.
        origins: Where each is set, as path:line, as far as that is known.
    """
    try:
        read_request(values)
    except ValidationError as error:
        return bad_values(error, name, {k.removeprefix(PREFIX): v for k, v in origins.items()}, PREFIX)
    return []


def _same_address(hosts: Iterable[dict[str, Any]]) -> list[Finding]:
    """Two names for one machine would be provisioned twice at the same time."""
    first: dict[tuple[str, int, tuple[str, ...]], str] = {}
    found = []
    for host in hosts:
        endpoint = _endpoint(host)
        address = (endpoint.host, endpoint.port or 22, endpoint.ssh_args)
        if endpoint.local:
            address = ("this machine", 0, ())
        other = first.setdefault(address, endpoint.name)
        if other != endpoint.name:
            where = host["origins"].get("ansible_connection" if endpoint.local else "ansible_host", "")
            found.append(Finding("duplicate-address", endpoint.name, where, address[0], other))
    return found


def _node(host: dict[str, Any], site: Site) -> Node:
    return Node(
        endpoint=_endpoint(host),
        groups=tuple(host["groups"]),
        request=read_request(host["vars"]),
        findings=tuple(without_prefix(name, where, site) for name, where in host["bare"].items()),
    )


def read_request(values: Mapping[str, Any]) -> Request:
    """The request in the variables of a host.

    Raises:
        ValidationError: `check_request` says it in words.
    """
    return Request.model_validate({k.removeprefix(PREFIX): v for k, v in values.items() if k.startswith(PREFIX)})


def _endpoint(host: dict[str, Any]) -> Endpoint:
    values = host["vars"]
    port = values.get("ansible_port")
    user = values.get("ansible_user")
    key = values.get("ansible_ssh_private_key_file") or values.get("ansible_private_key_file")
    python = values.get("ansible_python_interpreter")
    return Endpoint(
        name=host["name"],
        host=str(values.get("ansible_host") or host["name"]),
        port=int(port) if port is not None and str(port).isdecimal() else None,
        user=str(user) if user else None,
        ssh_args=tuple(word for variable in SSH_ARGUMENTS for word in _words(values, variable)[0]),
        private_key=os.path.expanduser(str(key)) if key else None,  # noqa: PTH111 - a string for ssh
        python=str(python) if python and not str(python).startswith("auto") else None,
        local=values.get("ansible_connection") in LOCAL,
    )


def _words(values: dict[str, Any], variable: str) -> tuple[list[str], str]:
    """The words of a variable, or why it has none."""
    try:
        return shlex.split(str(values.get(variable) or "")), ""
    except ValueError as error:
        return [], str(error)


def _no_site(site: Site) -> Problem:
    return Problem(
        code="no-site",
        subject=f"site {site.root}",
        message="there is no inventory/ here",
        exit_code=ExitCode.USAGE,
        remedy=f"gpustrap init {shlex.quote(str(site.root))}, or name your site with --site",
    )


def is_checkout(site: Site) -> bool:
    """Gpustrap's own sources, which hold an example of an inventory and no other."""
    project = site.root / "pyproject.toml"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        only_example = [entry.name for entry in site.inventory.iterdir()] == ["example"]
        return only_example and '\nname = "gpustrap"\n' in project.read_text(encoding="utf-8")
    return False


def checkout_problem(site: Site) -> Problem:
    """Gpustrap's own sources are no site, and are not made one."""
    return Problem(
        code="no-site",
        subject=f"site {site.root}",
        message="this is gpustrap's checkout, not a site",
        exit_code=ExitCode.USAGE,
        remedy="gpustrap init my-site, or name your site with --site",
    )


def _not_plain(site: Site, found: Sequence[str], all_hosts: Sequence[str]) -> Problem:
    if found:
        message, remedy = f"{len(found)} nodes have ansible_connection: local, and they cannot all be it", "keep one"
    else:
        message = f"none of the {len(all_hosts)} nodes has ansible_connection: local"
        remedy = f"add {LOCALHOST}: {{ansible_connection: local}} to the hosts"
    return Problem(
        code="no-local-node",
        subject="option --local",
        message=f"which node is this machine? {message}",
        exit_code=ExitCode.USAGE,
        evidence="nodes: " + ", ".join((found or all_hosts)[:10]),
        remedy=f"{remedy} in {site.inventory}",
    )


def _nothing(site: Site, all_hosts: list[str], patterns: Sequence[str] | None, limit: str | None) -> Problem:
    if not all_hosts:
        return Problem(
            code="no-hosts",
            subject=f"inventory {site.inventory}",
            message="there are no nodes in it",
            exit_code=ExitCode.USAGE,
            remedy=f"add your machines to {site.inventory / 'hosts.yml'}; or, for this machine itself, add --local",
        )
    asked = " ".join([*(patterns or ()), *(["--limit", limit] if limit else ())])
    return Problem(
        code="no-node-matches",
        subject=f"pattern {asked}",
        message=f"none of the {len(all_hosts)} nodes matches",
        exit_code=ExitCode.USAGE,
        evidence="nodes: " + ", ".join(all_hosts[:10]) + (" …" if len(all_hosts) > 10 else ""),
        remedy=f"ansible-inventory -i {site.inventory} --graph",
    )
