"""Every console takes text as it is: no markup, no emoji, and nothing cut off, whatever nodes, files and people say."""

from __future__ import annotations

import ast
from pathlib import Path

from gpustrap.content import content_root

SOURCE = Path(content_root()) / "src" / "gpustrap"
INERT = {"markup": False, "emoji": False}
WHOLE = {"soft_wrap": True}
PARSERS = {"from_markup", "render_markup", "render_str"}


def calls() -> list[tuple[str, str, ast.Call]]:
    """Place, name and call, of every call in the source that has a name."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                found.append((f"{path.relative_to(SOURCE)}:{node.lineno}", name, node))
    return found


def test_every_console_is_inert() -> None:
    consoles = [(place, call) for place, name, call in calls() if name == "Console"]
    assert len(consoles) >= 2
    for place, call in consoles:
        given = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
        assert (INERT | WHOLE).items() <= given.items(), place


def test_nothing_parses_markup() -> None:
    assert [place for place, name, _ in calls() if name in PARSERS] == []
    switched_on = [
        place
        for place, _, call in calls()
        for word in call.keywords
        if word.arg in INERT and not (isinstance(word.value, ast.Constant) and word.value.value is False)
    ]
    assert switched_on == []
