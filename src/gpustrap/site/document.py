"""Writes docs/variables.md and the example group variables from `Request`: ``python -m gpustrap.site.document``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpustrap.content import content_root
from gpustrap.model.request import Request, Written

GPU = ("policy", "gpu", "driver", "cuda", "cudnn", "nccl", "nvidia", "container_toolkit", "pcie_width")
FRAMEWORKS = ("environments", "python", "pytorch", "ca_bundle")
SECTIONS = {
    "docker": "docker",
    "conda": "conda",
    **dict.fromkeys(GPU, "the GPU stack"),
    **dict.fromkeys(FRAMEWORKS, "environments for frameworks"),
}
REST = "the machine"
WIDTH = 120


def section_of(name: str) -> str:
    """The heading a variable stands under."""
    return next((heading for start, heading in SECTIONS.items() if f"{name}_".startswith(f"{start}_")), REST)


def kind(annotation: Any) -> str:  # noqa: ANN401 - any annotation
    """What a person writes there."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, UnionType}:
        return kind(next(a for a in arguments if a is not NoneType))
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple:
        return f"list of {kind(arguments[0])}" if get_origin(arguments[0]) is Literal else "list"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"mapping: {', '.join(annotation.model_fields)}"
    return {bool: "true or false", int: "number", str: "text"}.get(annotation, "mapping")


def written(field: FieldInfo) -> str:
    """What a person writes, in the field's own words where it has some."""
    return next((m.words for m in field.metadata if isinstance(m, Written)), "") or kind(field.annotation)


def default(field: FieldInfo) -> str:
    """The default as YAML; empty where there is none."""
    given = next((m.default for m in field.metadata if isinstance(m, Written)), "")
    if given:
        return given
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        value = {k: v for k, v in value.model_dump(mode="json").items() if v}
    if value is None:
        return ""
    return json.dumps(value) if not isinstance(value, str) else value


def _fields(heading: str) -> Iterator[tuple[str, FieldInfo]]:
    yield from ((name, field) for name, field in Request.model_fields.items() if section_of(name) == heading)


def _headings() -> tuple[str, ...]:
    return tuple(dict.fromkeys(section_of(name) for name in Request.model_fields))


def variables_page() -> str:
    """The text of docs/variables.md."""
    lines = [
        "# Variables",
        "",
        "What you can ask of a node, in `inventory/group_vars` or `inventory/host_vars`. A misspelt one is refused.",
        "After a change: `gpustrap plan`, then `gpustrap apply`.",
        "",
        "<!-- Written by `python -m gpustrap.site.document` from src/gpustrap/model/request.py. -->",
    ]
    for heading in _headings():
        lines += ["", f"## {heading[0].upper()}{heading[1:]}", "", "| variable | write | default | meaning |"]
        lines.append("|---|---|---|---|")
        for name, field in _fields(heading):
            preset = f"`{default(field)}`" if default(field) else "unset"
            lines.append(f"| `gpustrap_{name}` | {written(field)} | {preset} | {field.description} |")
    return "\n".join(lines) + "\n"


def group_variables() -> str:
    """The text of the example group_vars/all.yml: every variable, commented out, with its default."""
    lines = [
        "---",
        "# What you want of every node. Each line shows a default; remove the # to change it.",
        "# Variables of a group go to group_vars/<group>.yml, of one node to host_vars/<node>.yml.",
        "# No passwords here: gpustrap asks for them, or reads them from a file descriptor or the environment.",
    ]
    for heading in _headings():
        lines += ["", f"### {heading}"]
        for name, field in _fields(heading):
            preset = default(field)
            lines += ["", *wrap(field.description or "", WIDTH, initial_indent="# ", subsequent_indent="# ")]
            lines += [f"# gpustrap_{name}:{' ' + preset if preset else ''}"]
    return "\n".join(lines) + "\n"


def targets(root: Path) -> dict[Path, str]:
    """The generated files of a checkout and what belongs in them."""
    return {
        root / "docs" / "variables.md": variables_page(),
        root / "inventory" / "example" / "group_vars" / "all.yml": group_variables(),
    }


def main() -> None:
    """Write both files."""
    for path, text in targets(content_root()).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
