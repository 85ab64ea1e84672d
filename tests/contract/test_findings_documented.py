"""docs/findings.md has every finding that a plan can have, with its kinds, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpustrap.content import content_root

SOURCE = Path(content_root()) / "src" / "gpustrap"
RESOLVE = SOURCE / "resolve"
CLOSURES = SOURCE / "commands" / "closures.py"  # which warns, of the default environment, of whatever cannot be locked
CANNOT_BE_LOCKED = re.compile(r'"(environment-[a-z-]+)"')
PAGE = Path(content_root()) / "docs" / "findings.md"
KINDS = {"note": "note", "warning": "warning", "problem": "refusal"}
SHORT = {"view.py"}  # where note and warning are themselves made of Finding


def named(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def constants(tree: ast.Module) -> dict[str, str]:
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def pattern(node: ast.expr, known: dict[str, str]) -> str:
    """A regular expression for a code: itself, a constant of the module, or an f-string around a name."""
    if isinstance(node, ast.Constant):
        return re.escape(str(node.value))
    if isinstance(node, ast.Name) and node.id in known:
        return re.escape(known[node.id])
    if isinstance(node, ast.JoinedStr):
        return "".join(re.escape(part.value) if isinstance(part, ast.Constant) else "[a-z0-9]+" for part in node.values)
    raise AssertionError(f"line {node.lineno}: a code must be readable in the source")


def emitted(path: Path) -> Iterator[tuple[str, str]]:
    """Pattern of the code, and kind, of every finding in a file, and of every refusal of a look."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known = constants(tree)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        keywords = {word.arg: word.value for word in call.keywords}
        code = keywords.get("code")
        if path == CLOSURES and isinstance(code, ast.Attribute):
            texts = [source.read_text(encoding="utf-8") for source in sorted((SOURCE / "environments").glob("*.py"))]
            yield from ((re.escape(name), "warning") for text in texts for name in CANNOT_BE_LOCKED.findall(text))
        elif named(call) == "Finding" and path.name not in SHORT:
            severity = keywords["severity"]
            assert isinstance(severity, ast.Constant)
            yield pattern(keywords["code"], known), str(severity.value)
        elif path.parent.name == "preflight" and named(call) in KINDS:
            yield pattern(call.args[0], known), KINDS[named(call)]


@pytest.fixture
def documented() -> dict[str, set[str]]:
    rows = re.findall(r"^\| (`.+?`) \| ([a-z, ]+) \| (.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        code: set(kinds.split(", "))
        for codes, kinds, _meaning, _remedy in rows
        for code in re.findall(r"`([a-z0-9-]+)`", codes)
    }


@pytest.fixture
def in_the_code() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in (*sorted(RESOLVE.rglob("*.py")), CLOSURES):
        for code, kind in emitted(path):
            found.setdefault(code, set()).add(kind)
    return found


def test_every_finding_has_a_row_with_its_kinds(
    documented: dict[str, set[str]], in_the_code: dict[str, set[str]]
) -> None:
    assert len(in_the_code) > 30
    for code, kinds in in_the_code.items():
        rows = {name: said for name, said in documented.items() if re.fullmatch(code, name)}
        assert rows, f"docs/findings.md does not have {code}"
        assert all(said == kinds for said in rows.values()), (rows, kinds)


def test_every_row_is_of_a_finding(documented: dict[str, set[str]], in_the_code: dict[str, set[str]]) -> None:
    assert [name for name in documented if not any(re.fullmatch(code, name) for code in in_the_code)] == []


def test_rows_are_sorted() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for part in page.split("\n## ")[1:]:
        codes = re.findall(r"^\| `([a-z0-9-]+)`", part, re.MULTILINE)
        assert codes
        assert codes == sorted(codes)
