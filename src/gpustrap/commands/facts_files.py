"""Facts of nodes from files, as ``gpustrap inspect --format json`` prints them; whatever else is in them is refused."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from gpustrap.catalog.schema import Catalog
from gpustrap.commands.recorded import Recorded, ShapeError, read_recorded
from gpustrap.errors import Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts

STDIN = "-"
KEPT = "facts.json"  # what a site keeps of a node, in a directory of the node's name
SUFFIXES = {".json", ".yml", ".yaml"}
MAX_BYTES = 256 << 20  # the facts of 5,000 nodes are about 150 MB
MAX_NAME = 253
RECORD = "gpustrap inspect --format json"
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _NoFactsError(Exception):
    """Why something in a file is no node's facts: the message, the remedy, and the evidence."""


def read_facts_files(
    sources: Sequence[str], stdin: BinaryIO, catalog: Catalog
) -> tuple[dict[str, Recorded], tuple[Problem, ...]]:
    """Every node's facts in files, by name; a broken file or node stops no other.

    Args:
        sources: Files, directories, or ``-``.
        stdin: What ``-`` is.
        catalog: Tells what facts that a person wrote leave out.
    """
    found: dict[str, Recorded] = {}
    places: dict[str, str] = {}
    problems: list[Problem] = []
    for source in sources:
        for place in _files(source):
            for name, answer in _nodes(place, stdin, catalog):
                if isinstance(answer, Problem):
                    problems.append(answer)
                elif name in found:
                    problems.append(_twice(name, place, places[name]))
                else:
                    found[name], places[name] = answer, place
    return found, tuple(problems)


def _files(source: str) -> list[str]:
    """The file itself; of a directory its files, and what a site keeps of its nodes."""
    path = Path(source)
    if source == STDIN or not path.is_dir():
        return [source]
    inside = [p for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file()]
    return sorted(map(str, [*inside, *path.glob(f"*/{KEPT}")])) or [source]


def _nodes(place: str, stdin: BinaryIO, catalog: Catalog) -> Iterator[tuple[str, Recorded | Problem]]:
    """Each node's name with its facts, or why there are none."""
    try:
        for name, facts in _records(_parse(place, _read(place, stdin)), _name_of(place)):
            yield name, _checked(name, facts, place, catalog)
    except _NoFactsError as error:
        yield "", _broken(place, *error.args)


def _checked(name: str, data: object, place: str, catalog: Catalog) -> Recorded | Problem:
    if not (name.isprintable() and 0 < len(name) <= MAX_NAME):
        remedy = "correct its node: letters, digits, dots and hyphens"
        return _broken(place, "a node's name in it cannot be used, so it is left out", remedy, repr(name[:MAX_NAME]))
    try:
        return read_recorded(data, catalog)
    except ShapeError as error:
        message = f"the facts of node {name} have mistakes, so they are left out"
        return _broken(place, message, error.remedy, error.evidence)


def _name_of(place: str) -> str:
    """Of a node whose facts do not say it."""
    path = Path(place).absolute()
    return "stdin" if place == STDIN else path.parent.name if path.name == KEPT else path.stem


def _read(place: str, stdin: BinaryIO) -> str:
    if place == STDIN:
        content = stdin.read(MAX_BYTES + 1)
        empty = "nothing came in", f"give it facts: {RECORD} | gpustrap plan --from-facts -"
    else:
        content, empty = _content(place), ("it is empty", f"record facts into it: {RECORD} > {shlex.quote(place)}")
    if not content.strip():
        raise _NoFactsError(*empty)
    if len(content) > MAX_BYTES:
        raise _NoFactsError(f"it is larger than {MAX_BYTES >> 20} MiB", "divide it into several files")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _NoFactsError("it is no text in UTF-8", "name a file of JSON or YAML", str(error)) from error


def _content(place: str) -> bytes:
    """What is in a file, or why it cannot be read."""
    try:
        if Path(place).is_dir():
            endings = ", ".join(sorted(SUFFIXES))
            raise _NoFactsError(f"there is no file in it that ends in {endings}", f"{RECORD} > {place}/facts.json")
        with Path(place).open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        if set(place) & set("*?["):
            raise _NoFactsError("no file is named like this pattern", "check the directory and the pattern") from error
        raise _NoFactsError("there is no such file", "check the name") from error
    except PermissionError as error:
        raise _NoFactsError("you may not read it", f"ls -l {shlex.quote(place)}") from error
    except (OSError, ValueError) as error:  # the latter of a name that can be none
        words = getattr(error, "strerror", "") or str(error)
        raise _NoFactsError("it cannot be read", "check the name and the file", words) from error


def _parse(place: str, text: str) -> object:
    suffix = Path(place).suffix
    is_json = suffix == ".json" or (suffix not in SUFFIXES and text.lstrip().startswith(("{", "[")))
    try:
        if is_json:
            return json.loads(text)
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=LOADER)):
            message = "it has YAML aliases, which can make a giant of a small file"
            raise _NoFactsError(message, "write it without & and *")
        return yaml.load(text, Loader=LOADER)  # noqa: S506 - one of yaml's safe loaders
    except RecursionError as error:
        raise _NoFactsError("its lists and mappings are nested too deep", "name a file of facts") from error
    except (ValueError, yaml.YAMLError) as error:
        kind = "JSON" if is_json else "YAML"
        raise _NoFactsError(f"it is no {kind}, so it is left out", "correct it where that says", str(error)) from error


def _records(data: object, stem: str) -> Iterator[tuple[str, object]]:
    """Names and facts in one node's facts, one entry of inspect's output, all of it, or its list of nodes."""
    if isinstance(data, dict) and isinstance(data.get("nodes"), list):
        data = data["nodes"]
    if isinstance(data, dict) and "facts" in data:
        data = [{"node": stem, **data}]
    if isinstance(data, list) and data and all(isinstance(n, dict) and {"node", "facts"} <= n.keys() for n in data):
        yield from ((str(entry["node"]), entry["facts"]) for entry in data)
    elif isinstance(data, dict) and data.keys() & Facts.model_fields.keys():
        yield stem, data
    else:
        raise _NoFactsError(
            "it holds no node's facts", "docs/plan.md, Machines that are not here, shows what it must hold"
        )


def _broken(place: str, message: str, remedy: str, evidence: str = "") -> Problem:
    return Problem(
        code="facts-broken",
        subject=_subject(place),
        message=message,
        exit_code=ExitCode.USAGE,
        evidence=evidence[:1000],
        remedy=remedy,
    )


def _twice(name: str, place: str, first: str) -> Problem:
    return Problem(
        code="facts-twice",
        subject=_subject(place),
        message=f"node {name} is in {_subject(first)}, too; what is here is left out",
        exit_code=ExitCode.USAGE,
        remedy="give each node its own name",
    )


def _subject(place: str) -> str:
    return "standard input" if place == STDIN else place
