"""Runs as its own process: reads the inventory exactly as Ansible does, and answers with JSON on stdout.

Ansible's loaders keep process-wide state and print what they like, so they never run inside gpustrap itself.
Request (stdin): ``{"inventory": DIR, "patterns": [..], "limit": str | null, "vault_password_file": str | null,
"role_prefixes": [..], "wishes": [..]}``.
Answer: ``{"hosts": [{"name", "groups", "vars", "origins", "bare"}], "all_hosts": [..], "all_groups": [..],
"failures": [..]}``; ``bare`` tells where those of the wishes are set that lack the prefix, and a failure is
``{"kind", "where", "message", "name", "node"}``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.inventory.manager import InventoryManager, split_host_pattern
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
from ansible.utils.display import Display
from ansible.vars.manager import VariableManager

# What decides how a node is reached. Passwords are looked for only to refuse them; their values never leave here.
CONNECTION = (
    "ansible_connection",
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_ssh_args",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_ssh_private_key_file",
    "ansible_private_key_file",
    "ansible_python_interpreter",
)
PASSWORDS = (
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_become_password",
    "ansible_become_pass",
    "ansible_sudo_pass",
)
# Ansible obeys these and gpustrap does not: it would inspect one machine and change another, or trust what it must not.
# With each, what to set instead.
ANSIBLE_ONLY = {
    "ansible_ssh_host": "ansible_host",
    "ansible_ssh_port": "ansible_port",
    "ansible_ssh_user": "ansible_user",
    "ansible_become_user": "",
    "ansible_host_key_checking": "",
    "ansible_private_key": "ansible_ssh_private_key_file",
    "ansible_ssh_executable": "",
    "ansible_ssh_host_key_checking": "",
    "ansible_ssh_pkcs11_provider": "",
    "ansible_ssh_private_key": "ansible_ssh_private_key_file",
}
PREFIX = "gpustrap_"


def main() -> None:
    """Answer one request."""
    answer_stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever Ansible prints must not mix with the answer
    request = json.load(sys.stdin)
    with answer_stream:
        json.dump(_answer(request), answer_stream, default=str)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    failures: list[dict[str, str]] = []
    answer: dict[str, Any] = {"hosts": [], "all_hosts": [], "all_groups": [], "failures": failures}
    init_plugin_loader()
    loader = DataLoader()
    _unlock_vault(loader, request["vault_password_file"])
    root = Path(request["inventory"])
    loader.set_basedir(str(root))  # else group_vars of whatever directory the user is in would count
    _check_variable_files(loader, root, failures)
    _listen(failures)
    try:
        inventory = InventoryManager(loader=loader, sources=[str(root)])
        if failures:
            return answer
        _add_localhost(inventory, request["patterns"])
        chosen = _choose(inventory, request, failures)
        variables = VariableManager(loader=loader, inventory=inventory)
        answer["all_hosts"] = sorted(inventory.hosts)
        answer["all_groups"] = sorted(inventory.groups)
        answer["hosts"] = [_resolve(host, loader, variables, request, failures) for host in chosen]
    except AnsibleError as error:
        if not failures:  # else Ansible has said it better as a warning before
            failures.append(_failure(_kind(error, "inventory-broken"), error))
    return answer


def _listen(failures: list[dict[str, str]]) -> None:
    """Take what Ansible only warns about: files that no plugin could read, and parts of them it skips."""
    display = Display()

    def file_failed(msg: str, exception: AnsibleError, **_more: object) -> None:
        # Every plugin that tried says why; only the one that the file is meant for says something of use.
        source = re.search(r"with source '(.+)'", str(exception.obj))
        path = source[1] if source else str(exception.obj)
        if ("'yaml'" in msg) == path.endswith((".yml", ".yaml")):
            failures.append(_failure("inventory-broken", exception, where=path))

    def warned(msg: str, *_args: object, **_more: object) -> None:
        if msg.startswith("Skipping "):
            failures.append({"kind": "inventory-broken", "where": "", "message": msg, "name": "", "node": ""})

    display.error_as_warning = file_failed
    display.warning = warned


def _unlock_vault(loader: DataLoader, password_file: str | None) -> None:
    from ansible import constants  # noqa: PLC0415 - both cost time that most sites need not spend

    identities, default_file = constants.DEFAULT_VAULT_IDENTITY_LIST, constants.DEFAULT_VAULT_PASSWORD_FILE
    files = [f for f in (password_file, default_file) if f]
    if not files and not identities:
        return
    from ansible.cli import CLI  # noqa: PLC0415

    loader.set_vault_secrets(
        CLI.setup_vault_secrets(loader, vault_ids=list(identities), vault_password_files=files, auto_prompt=False)
    )


def _check_variable_files(loader: DataLoader, root: Path, failures: list[dict[str, str]]) -> None:
    """Load every variables file as Ansible will (it caches them), so that all broken ones are reported together."""
    files = (p for d in ("group_vars", "host_vars") for p in (root / d).rglob("*") if p.suffix in {".yml", ".yaml"})
    for path in sorted(p for p in files if p.is_file()):
        try:
            loader.load_from_file(str(path), cache="all", unsafe=True, trusted_as_template=True)
        except AnsibleError as error:
            failures.append(_failure(_kind(error, "inventory-broken"), error, where=str(path)))


def _add_localhost(inventory: InventoryManager, patterns: list[str]) -> None:
    """Where it is named and the inventory has none, it is this machine; unlike Ansible's own it has group variables."""
    if patterns == ["localhost"] and "localhost" not in inventory.hosts:
        inventory.add_host("localhost")
        inventory.hosts["localhost"].set_variable("ansible_connection", "local")
        inventory.reconcile_inventory()


def _choose(inventory: InventoryManager, request: dict[str, Any], failures: list[dict[str, str]]) -> list[Any]:
    patterns = request["patterns"] or ["all"]
    limit = split_host_pattern(request["limit"]) if request["limit"] else []
    for pattern in (*split_host_pattern(patterns), *limit):
        bare = pattern.lstrip("!&")
        if not pattern.startswith(("!", "@")) and bare != "all" and not _named(inventory, bare):
            failures.append({"kind": "no-such-node", "where": "", "message": "", "name": bare, "node": ""})
    if limit:
        inventory.subset(request["limit"])
    return [host for host in inventory.get_hosts(patterns) if not host.implicit]


def _named(inventory: InventoryManager, pattern: str) -> list[Any]:
    return [host for host in inventory.get_hosts(pattern, ignore_limits=True) if not host.implicit]


def _resolve(
    host: Any,  # noqa: ANN401 - Ansible is untyped
    loader: DataLoader,
    variables: VariableManager,
    request: dict[str, Any],
    failures: list[dict[str, str]],
) -> dict[str, Any]:
    raw = variables.get_vars(host=host)
    template = Templar(loader=loader, variables=raw).template
    values, origins = read_variables(host.name, raw, template, request["role_prefixes"], failures)
    groups = sorted(g.name for g in host.get_groups() if g.name not in {"all", "ungrouped"})
    return {
        "name": host.name,
        "groups": groups,
        "vars": values,
        "origins": origins,
        "bare": bare(raw, request["wishes"]),
    }


def read_variables(
    node: str,
    raw: Mapping[str, Any],
    template: Callable[[Any], Any],
    role_prefixes: Iterable[str],
    failures: list[dict[str, str]],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Work out the variables of a node that matter here; the action plugin of plain Ansible does it with these, too.

    Args:
        node: Inventory name.
        raw: The variables as Ansible has them.
        template: Ansible's templating with them.
        role_prefixes: What the names of variables begin with that come from the plan and from nowhere else.
        failures: Gets what is refused and what cannot be worked out.

    Returns:
        The values, and where each was set, as path:line.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in sorted(raw):
        kind = _refused(name, role_prefixes)
        if kind:
            message = ANSIBLE_ONLY.get(name, "")
            failures.append({"kind": kind, "where": _origin(raw[name], name), "message": message, **_at(name, node)})
        elif name.startswith(PREFIX) or name in CONNECTION:
            origins[name] = _origin(raw[name], name)
            try:
                values[name] = template(raw[name])
            except AnsibleError as error:
                failures.append(_failure(_kind(error, "variable-broken"), error, where=origins[name]) | _at(name, node))
    return values, origins


def bare(raw: Mapping[str, Any], wishes: Iterable[str]) -> dict[str, str]:
    """Where those of the wishes are set that lack the prefix, and are not there with it, too."""
    return {name: _origin(raw[name], name) for name in wishes if name in raw and PREFIX + name not in raw}


def _refused(name: str, role_prefixes: Iterable[str]) -> str:
    if name in PASSWORDS:
        return "password-in-inventory"
    if name in ANSIBLE_ONLY:
        return "variable-not-supported"
    return "role-variable" if name.startswith(tuple(role_prefixes)) else ""


def _at(name: str, node: str) -> dict[str, str]:
    return {"name": str(name), "node": str(node)}


def _origin(value: object, name: str) -> str:
    """Where a variable is set, as path:line. Numbers and booleans carry no tag of their own; then its name's."""
    for tagged in (value, name):
        origin = Origin.get_tag(tagged)
        if origin and origin.path:
            return f"{origin.path}:{origin.line_num}" if origin.line_num else str(origin.path)
    return ""


def _kind(error: AnsibleError, otherwise: str) -> str:
    if isinstance(error, AnsibleUndefinedVariable):
        return "variable-undefined"
    return "vault-locked" if "vault" in str(error).lower() else otherwise


def _failure(kind: str, error: AnsibleError, *, where: str = "") -> dict[str, str]:
    """Say what failed and where; of a chain of errors the innermost knows the line."""
    found: BaseException | None = error
    while found is not None:
        thing = getattr(found, "obj", None)
        tag = thing if isinstance(thing, Origin) else Origin.get_tag(thing)
        if tag and tag.path and (tag.line_num or not where):
            where = f"{tag.path}:{tag.line_num}" if tag.line_num else str(tag.path)
        found = found.__cause__ or found.__context__
    return {"kind": kind, "where": where, "message": str(error), "name": "", "node": ""}


if __name__ == "__main__":
    main()
