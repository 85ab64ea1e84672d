"""What can be wrong with an inventory, in words that name the file, the variable and the way out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pydantic import ValidationError

from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model import plan
from gpustrap.model.site import Site
from gpustrap.site.meant import PREFIX, Meant, closest, variable_meant, wish_behind
from gpustrap.site.values import place_in, wrong_value


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, as found on one host; the same thing on many hosts becomes one problem.

    Attributes:
        kind: The code of the problem.
        node: Inventory name, where it is about one.
        where: path or path:line.
        name: The variable or the pattern.
        text: The tool's own words, or what else the problem's sentence needs.
        instead: What to write as the value, where that is known.
        meant: The variable that may have been meant.
    """

    kind: str
    node: str = ""
    where: str = ""
    name: str = ""
    text: str = ""
    instead: str = ""
    meant: Meant | None = None


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
            meant = variable_meant(field, item["input"])
            found.append(Finding("unknown-variable", node, where, prefix + field, meant=meant))
        else:
            place = place_in(dict(item))
            wrong = wrong_value(dict(item))
            meant = Meant(wrong.taker) if wrong.taker else None
            found.append(Finding("bad-value", node, where, prefix + field + place, wrong.said, wrong.instead, meant))
    return found


def explain(findings: Iterable[Finding], site: Site, *, names: Iterable[str]) -> tuple[Problem, ...]:
    """Make problems of findings: one for each cause, naming the nodes where no file can be named."""
    nodes: dict[Finding, list[str]] = {}
    for f in findings:
        cause = replace(f, node="" if f.where else f.node)
        nodes.setdefault(cause, []).append(f.node)
    known = tuple(names)
    return tuple(_problem(cause, nodes[cause], site, known) for cause in sorted(nodes, key=_line))


def _line(f: Finding) -> tuple[str, int]:
    """A file's problems stand together, in the order of its lines."""
    file, _, line = f.where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (f.where, 0)


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


def without_prefix(name: str, where: str, site: Site) -> plan.Finding:
    """A variable that may be the user's own, or one of gpustrap's that nobody will read."""
    place = _relative(where, site)
    return plan.Finding(
        code="variable-without-prefix",
        severity="warning",
        subject=place,
        message=f"gpustrap does not read {name}; its own variable is {PREFIX}{name}",
        advice=f"rename it to {PREFIX}{name} if it is meant for gpustrap",
    )


Texts = tuple[str, str, str]  # message, remedy, evidence


def _unknown_variable(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    meant = f.meant or variable_meant(f.name)
    if not meant:
        return f"there is no variable {f.name}", "see docs/variables.md for all of them", ""
    if meant.value:
        line = f"{meant.variable}: {meant.value}"
        return f"there is no variable {f.name}; did you mean {line}?", f"write {line} in {file}", ""
    message = f"there is no variable {f.name}; did you mean {meant.variable}?"
    return message, f"rename it to {meant.variable} in {file}", ""


def _bad_value(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    way = f"write {f.name}: {f.instead} in {file}" if f.instead else f"correct {f.name} in {file}"
    if f.meant:
        way = f"rename it to {f.meant.variable} in {file}"
    return f"{f.name} {f.text}", way, ""


def _no_such_node(f: Finding, _file: str, known: tuple[str, ...]) -> Texts:
    near = closest(f.name, known)
    hint = f"; did you mean {near}?" if near else ""
    return f"no node, group or pattern {f.name} matches{hint}", "look at the names in inventory/hosts.yml", ""


def _role_variable(f: Finding, file: str, _known: tuple[str, ...]) -> Texts:
    near = wish_behind(f.name)
    way = (
        f"set {PREFIX}{near} instead, in {file}"
        if near
        else f"remove it from {file}; docs/variables.md has what can be set"
    )
    return f"{f.name} belongs to a role: it comes from the plan, not from the inventory", way, ""


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
    message = f"ansible_connection is {f.text}; gpustrap knows ssh, and local for this machine"
    return message, f"remove it from {file}", ""


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
