"""Facts of nodes from files, as ``gpustrap inspect --format json`` prints them; whatever else is in them is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from gpustrap.commands.inspect import validate
from gpustrap.errors import GpustrapError, Problem
from gpustrap.exitcodes import ExitCode
from gpustrap.model.facts import Facts

STDIN = "-"
KEPT = "facts.json"  # what a site keeps of a node, in a directory of the node's name
SUFFIXES = {".json", ".yml", ".yaml"}
MAX_BYTES = 256 << 20  # the facts of 5,000 nodes are about 150 MB
MAX_NAME = 253
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _NoFactsError(Exception):
    """Why something in a file is no node's facts: the message, and the evidence."""


def read_facts_files(sources: Sequence[str], stdin: BinaryIO) -> tuple[dict[str, Facts], tuple[Problem, ...]]:
    """Every node's facts in files, by name; a broken file or node stops no other.

    Args:
        sources: Files, directories, or ``-``.
        stdin: What ``-`` is.
    """
    found: dict[str, Facts] = {}
    places: dict[str, str] = {}
    problems: list[Problem] = []
    for source in sources:
        for place in _files(source):
            for name, answer in _nodes(place, stdin):
                if isinstance(answer, GpustrapError):
                    problems += answer.problems
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


def _nodes(place: str, stdin: BinaryIO) -> Iterator[tuple[str, Facts | GpustrapError]]:
    """Each node's name with its facts, or why there are none."""
    try:
        for name, facts in _records(_parse(place, _read(place, stdin)), _name_of(place)):
            yield name, _checked(name, facts, place)
    except _NoFactsError as error:
        message, *evidence = error.args
        yield "", GpustrapError(_broken(place, message, *evidence))


def _checked(name: str, data: object, place: str) -> Facts | GpustrapError:
    if not (name.isprintable() and 0 < len(name) <= MAX_NAME):
        return GpustrapError(_broken(place, "a node's name in it cannot be used", repr(name[:MAX_NAME])))
    facts = validate(name, data)
    if isinstance(facts, Facts):
        return facts
    evidence = f"node {name}\n{facts.problems[0].evidence}"
    return GpustrapError(_broken(place, "what it holds does not have the shape of facts", evidence))


def _name_of(place: str) -> str:
    """Of a node whose facts do not say it."""
    path = Path(place).absolute()
    return "stdin" if place == STDIN else path.parent.name if path.name == KEPT else path.stem


def _read(place: str, stdin: BinaryIO) -> str:
    try:
        if place != STDIN and Path(place).is_dir():
            raise _NoFactsError(f"there is no file in it that ends in {', '.join(sorted(SUFFIXES))}")
        if place == STDIN:
            content = stdin.read(MAX_BYTES + 1)
        else:
            with Path(place).open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _NoFactsError(f"it is larger than {MAX_BYTES >> 20} MiB")
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:  # among the latter what is no text
        raise _NoFactsError("it cannot be read", str(error)) from error


def _parse(place: str, text: str) -> object:
    suffix = Path(place).suffix
    is_json = suffix == ".json" or (suffix not in SUFFIXES and text.lstrip().startswith(("{", "[")))
    try:
        if is_json:
            return json.loads(text)
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=LOADER)):
            raise _NoFactsError("it has YAML aliases, which can make a giant of a small file")
        return yaml.load(text, Loader=LOADER)  # noqa: S506 - one of yaml's safe loaders
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise _NoFactsError(f"it is no {'JSON' if is_json else 'YAML'}", str(error)) from error


def _records(data: object, stem: str) -> Iterator[tuple[str, object]]:
    """Names and facts in one node's facts, one entry of inspect's output, all of it, or its list of nodes."""
    if isinstance(data, dict) and isinstance(data.get("nodes"), list):
        data = data["nodes"]
    if isinstance(data, dict) and "facts" in data:
        data = [{"node": stem, **data}]
    if isinstance(data, list) and data and all(isinstance(n, dict) and {"node", "facts"} <= n.keys() for n in data):
        yield from ((str(entry["node"]), entry["facts"]) for entry in data)
    elif isinstance(data, dict) and "os" in data:
        yield stem, data
    else:
        raise _NoFactsError("it holds no node's facts")


def _broken(place: str, message: str, evidence: str = "") -> Problem:
    return Problem(
        code="facts-broken",
        subject=_subject(place),
        message=f"{message}, so it is left out",
        exit_code=ExitCode.USAGE,
        evidence=evidence[:1000],
        remedy="record it anew: gpustrap inspect --format json > facts.json",
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
