"""Every refusal of a plan has its row in a page and its name in a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gpustrap.content import content_root

ROOT = Path(content_root())
SOURCES = (
    *sorted((ROOT / "src" / "gpustrap" / "resolve").rglob("*.py")),
    *sorted((ROOT / "src" / "gpustrap" / "commands").glob("plan*.py")),
)


def codes() -> Iterator[tuple[str, str]]:
    """Code and file of what is called ``problem(…)`` or ``Problem(…)``, where the code is readable in the source."""
    for path in SOURCES:
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            said = {word.arg: word.value for word in call.keywords}.get("code") or next(iter(call.args), None)
            if name in {"problem", "Problem"} and isinstance(said, ast.Constant):
                yield str(said.value), path.name
    for path in sorted((ROOT / "src" / "gpustrap" / "environments").glob("*.py")):
        for code in re.findall(r'"(environment-[a-z-]+)"', path.read_text("utf-8")):
            yield code, path.name


def texts(directory: str, *suffixes: str) -> str:
    paths = (path for path in sorted((ROOT / directory).rglob("*")) if path.suffix in suffixes)
    return "\n".join(path.read_text("utf-8") for path in paths)


def test_every_refusal_has_a_row() -> None:
    rows = "\n".join(line for line in texts("docs", ".md").splitlines() if line.startswith("| `"))
    assert len(set(codes())) > 40
    assert [found for found in codes() if f"`{found[0]}`" not in rows] == []


def test_every_refusal_is_named_in_a_test() -> None:
    tests = texts("tests", ".py", ".yml")
    assert [c for c in codes() if not re.search(rf"(?<![a-z0-9-]){re.escape(c[0])}(?![a-z0-9-])", tests)] == []
