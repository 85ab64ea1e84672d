"""Reads a person's own file of requirements: pip's kind for uv, a list or an environment.yml for conda."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpustrap.environments.closure import ClosureError

INCLUDES = {"-r": "requirement", "--requirement": "requirement", "-c": "constraint", "--constraint": "constraint"}
OPTION = re.compile(r"(-[a-zA-Z]|--[a-z-]+)(?:[ =]\s*|(?<=-[rc]))(.*)")
COMMENT = re.compile(r"(^|\s)#.*$")
ADDRESS = re.compile(r"://|^[./]|\s@\s|\.(whl|zip|tar\.gz)$")
YAML = {".yml", ".yaml"}
OF_ENVIRONMENT = {"name", "prefix", "channels", "dependencies"}
CODE = "environment-requirements"


def read_requirements(root: Path, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Requirements and constraints of a file and of those that it includes, without comments.

    Args:
        root: The site.
        name: The file, below the site.

    Raises:
        ClosureError: It is not there, or holds what cannot be locked.
    """
    found = list(_lines(root, Path(name), "requirement", ()))
    wanted, kept_to = ([text for kind, text in found if kind == which] for which in ("requirement", "constraint"))
    return tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(kept_to))


def read_specs(root: Path, name: str, channels: tuple[str, ...]) -> tuple[str, ...]:
    """What a file for conda asks for.

    Args:
        root: The site.
        name: The file, below the site: an ``environment.yml``, or a list of packages.
        channels: The site's channels; an ``environment.yml`` may have no others.

    Raises:
        ClosureError: It is not there, or holds what cannot be locked.
    """
    if Path(name).suffix not in YAML:
        lines = (COMMENT.sub("", line).strip() for line in _text(root, Path(name)).splitlines())
        return tuple(_plain(name, line) for line in lines if line)
    try:
        data: Any = yaml.safe_load(_text(root, Path(name)))
    except yaml.YAMLError as error:
        raise _wrong(name, "is no YAML", "mend it", str(error)) from error
    if not isinstance(data, dict) or not isinstance(data.get("dependencies"), list):
        raise _wrong(name, "has no list of dependencies", "write it as conda env export does")
    if strange := sorted(set(map(str, data)) - OF_ENVIRONMENT):
        raise _wrong(name, f"has {', '.join(strange)}, which is not known here", "take it out")
    if foreign := [str(one) for one in data.get("channels") or () if one not in {*channels, "nodefaults"}]:
        raise _wrong(
            name, f"names channel {foreign[0]}, which is none of the site's", "add it to gpustrap_conda_channels"
        )
    if [one for one in data["dependencies"] if not isinstance(one, str)]:
        words = "has packages for pip: conda cannot lock those"
        raise _wrong(name, words, "name conda's packages, or use engine: uv")
    return tuple(_plain(name, text) for text in data["dependencies"])


def _lines(root: Path, path: Path, kind: str, inside: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    if path in inside:
        raise _wrong(str(path), "includes itself", f"take -r {path} out of {inside[-1]}")
    for raw in _text(root, path).replace("\\\n", " ").splitlines():
        line = COMMENT.sub("", raw).strip()
        if not line:
            continue
        if not line.startswith("-"):
            yield kind, _plain(str(path), line)
            continue
        option = OPTION.match(line)
        if option is None or option[1] not in INCLUDES:
            remedy = "take it out: indexes are gpustrap_python_index and gpustrap_pytorch_index"
            raise _wrong(str(path), f"has an option: {line}", remedy)
        further = INCLUDES[option[1]] if kind == "requirement" else kind
        yield from _lines(root, path.parent / option[2].strip(), further, (*inside, path))


def _plain(name: str, line: str) -> str:
    if ADDRESS.search(line):
        remedy = "name packages of the index; what is your own goes into an index of yours (gpustrap_python_index)"
        raise _wrong(name, f"names an address or a file, which no hash of an index proves: {line}", remedy)
    return line


def _text(root: Path, path: Path) -> str:
    place = (root / path).resolve()
    if not place.is_relative_to(root.resolve()):
        raise _wrong(str(path), "is outside of the site", "move it into the site, which is what you commit")
    try:
        return place.read_text(encoding="utf-8")
    except FileNotFoundError:
        remedy = f"write it, or take it out of gpustrap_environments; it is looked for as {place}"
        raise _wrong(str(path), "is not there", remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(str(path), "cannot be read", "make it a readable text in UTF-8", str(error)) from error


def _wrong(name: str, words: str, remedy: str, evidence: str = "") -> ClosureError:
    return ClosureError(CODE, f"its requirements file {name} {words}", remedy, evidence)
