"""What can be wrong with an inventory, in words that name the file, the variable and the way out."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.request import Request
from gpustrap.model.roles import PENDING_ROLES, ROLES
from gpustrap.model.site import Site
from gpustrap.model.urls import without_credentials


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, as found on one host; the same thing on many hosts becomes one problem.

    Attributes:
        kind: The code of the problem.
        node: Inventory name, where it is about one.
        where: path or path:line.
        name: The variable or the pattern.
        text: The tool's own words, or what else the problem's sentence needs.
    """

    kind: str
    node: str = ""
    where: str = ""
    name: str = ""
    text: str = ""


def from_failure(failure: dict[str, str]) -> Finding:
    """What the child reported."""
    return Finding(failure["kind"], failure["node"], failure["where"], failure["name"], failure["message"])


def bad_values(error: ValidationError, node: str, origins: dict[str, str], prefix: str) -> list[Finding]:
    """Pydantic's errors about a request, one finding each."""
    found = []
    for item in error.errors(include_url=False):
        field, inner = str(item["loc"][0]), item["loc"][1:]
        where = origins.get(field, "")
        if item["type"] == "extra_forbidden" and not inner:
            found.append(Finding("unknown-variable", node, where, prefix + field))
        else:
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in inner)
            found.append(Finding("bad-value", node, where, prefix + field + place, in_words(dict(item))))
    return found


def in_words(item: dict[str, Any]) -> str:
    """One of pydantic's errors, for a person."""
    value = item["input"]
    context = item.get("ctx", {})
    words: dict[str, str] = {
        "string_type": "must be text; put it in quotes",
        "tuple_type": "must be a list",
        "dict_type": "must be a mapping of keys to values",
        "model_type": "must be a mapping of keys to values",
        "bool_parsing": "must be true or false",
        "bool_type": "must be true or false",
        "int_parsing": "must be a whole number",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "literal_error": f"must be one of {context.get('expected', '')}",
        "greater_than_equal": f"must be {context.get('ge', '')} or more",
        "string_pattern_mismatch": f"must match {context.get('pattern', '')}",
        "extra_forbidden": "is not known here",
    }
    said = words.get(item["type"], str(item["msg"]))
    shown = without_credentials(repr(value))
    return f"{said}; it is {shown if len(shown) <= 60 else shown[:57] + '…'}"


def explain(findings: Iterable[Finding], site: Site, *, names: Iterable[str]) -> tuple[Problem, ...]:
    """Make problems of findings: one for each cause, naming the nodes where no file can be named."""
    nodes: dict[Finding, list[str]] = {}
    for f in findings:
        cause = Finding(f.kind, "" if f.where else f.node, f.where, f.name, f.text)
        nodes.setdefault(cause, []).append(f.node)
    known = tuple(names)
    return tuple(_problem(cause, where, site, known) for cause, where in nodes.items())


def _problem(f: Finding, nodes: list[str], site: Site, known: tuple[str, ...]) -> Problem:
    place = _relative(f.where, site)
    subject = place or (f"node {nodes[0]}" if nodes[0] else f"inventory {site.inventory}")
    message, remedy, evidence = _TEXTS[f.kind](f, place.rpartition(":")[0] or place or "the inventory", known)
    if place and nodes[0] and f.kind != "inventory-broken":
        more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
        evidence = "\n".join(filter(None, (evidence, f"for {', '.join(nodes[:3])}{more}")))
    return Problem(f.kind, subject, message, ExitCode.USAGE, evidence, remedy)


def _relative(where: str, site: Site) -> str:
    root = f"{site.root.resolve()}{os.sep}"
    return where.removeprefix(root)


def closest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """What somebody who wrote a name may have meant; empty where nothing is near."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")


Texts = tuple[str, str, str]  # message, remedy, evidence


def _unknown_variable(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    near = closest(f.name, (f"gpustrap_{name}" for name in Request.model_fields))
    if near:
        return f"there is no variable {f.name}; did you mean {near}?", f"rename it to {near} in {file}", ""
    return f"there is no variable {f.name}", "see docs/variables.md for all of them", ""


def _bad_value(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    return f"{f.name} {f.text}", f"correct {f.name} in {file}", ""


def _no_such_node(f: Finding, _file: str, known: tuple[str, ...]) -> Texts:
    near = closest(f.name, known)
    hint = f"; did you mean {near}?" if near else ""
    return f"no node, group or pattern {f.name} matches{hint}", "look at the names in inventory/hosts.yml", ""


def _role_variable(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    near = _request_variable(f.name)
    way = f"set {near} instead, in {file}" if near else f"remove it from {file}; docs/variables.md has what can be set"
    return f"{f.name} belongs to a role: it comes from the plan, not from the inventory", way, ""


def _request_variable(name: str) -> str:
    """The wish behind a role's variable: nvidia_driver_branch -> gpustrap_driver_branch; empty where none is near."""
    role = next(role for role in (*ROLES, *PENDING_ROLES) if name.startswith(f"{role}_"))
    rest, fields = name.removeprefix(f"{role}_"), Request.model_fields
    starts = [word for word in role.split("_") if any(field.startswith(f"{word}_") for field in fields)]
    # No word of ubuntu_server begins a variable: its own are the plain ones.
    guesses = [f"{start}_{rest}" for start in starts] or [rest]
    alike = [field for field in fields if not starts or field.startswith(tuple(f"{start}_" for start in starts))]
    near = next((g for g in guesses if g in fields), "") or closest(guesses[-1], alike, cutoff=0.8)
    return f"gpustrap_{near}" if near else ""


def _password(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    sudo = "become" in f.name or "sudo" in f.name
    option, variable = ("--ask-become-pass", "BECOME") if sudo else ("--ask-password", "SSH")
    message = f"{f.name} is set; gpustrap takes no passwords from the inventory"
    return message, f"remove it from {file}; use {option} or GPUSTRAP_{variable}_PASSWORD", ""


def _node_name(_f: Finding, _file: str, _known: tuple[str, ...]) -> Texts:
    return "its name cannot be used", "name it with letters, digits, dots and hyphens, and set ansible_host", ""


def _duplicate(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    message = f"{f.node or 'it'} has the same address as {f.text}: {f.name}"
    return message, f"give each node its own ansible_host in {file}", ""


def _broken(f: Finding, _file: str, _known: tuple[str, ...]) -> Texts:
    return "the inventory cannot be read", "correct the file", f.text


def _vault(_f: Finding, _file: str, _known: tuple[str, ...]) -> Texts:
    return "it is encrypted and no vault password was given", "export GPUSTRAP_VAULT_PASSWORD_FILE=…", _f.text


def _undefined(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    return f"{f.name} uses a variable that is not set", f"set it, or correct {f.name} in {file}", f.text


def _untemplatable(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    return f"{f.name} cannot be worked out", f"correct {f.name} in {file}", f.text


def _connection(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    return f"ansible_connection is {f.text}; gpustrap reaches nodes over SSH only", f"remove it from {file}", ""


def _not_supported(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    message = f"{f.name} is set; Ansible would obey it and gpustrap's own connections would not"
    return message, f"rename it to {f.text} in {file}" if f.text else f"remove it from {file}", ""


_TEXTS: dict[str, Callable[[Finding, str, tuple[str, ...]], Texts]] = {
    "unknown-variable": _unknown_variable,
    "bad-node-name": _node_name,
    "bad-value": _bad_value,
    "no-such-node": _no_such_node,
    "role-variable": _role_variable,
    "password-in-inventory": _password,
    "duplicate-address": _duplicate,
    "inventory-broken": _broken,
    "vault-locked": _vault,
    "variable-undefined": _undefined,
    "variable-broken": _untemplatable,
    "connection-not-supported": _connection,
    "variable-not-supported": _not_supported,
}
