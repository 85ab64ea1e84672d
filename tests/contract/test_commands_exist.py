"""Every gpustrap command that we tell a person to run exists, with every option that we name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from gpustrap.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PLACES = (
    *("src", "docs", "roles", "playbooks", "inventory/example", "molecule", "changelog.d", "run"),
    *("README.md", "CONTRIBUTING.md", "SECURITY.md"),
)
TEXTS = {".md", ".yml", ".yaml", ".j2", ".sh", ".cfg", ".txt", ""}
GAP = "\0"  # what an f-string puts in: a node, a path
# Where a command may end: another begins, a comment, the end of a sentence, of a quotation or of the line.
_END = r"(?:&&|\|\|?|[;()`·\n<>]|\s#\s|[.,:](?:\s|$)|\"\s*$|$)"
_COMMAND = re.compile(rf"(?<![\w./-])gpustrap(?P<words>(?:[ \t]+|[ \t]*\\?\n[ \t]+)[^\n]*?)(?={_END})", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
_WORD = re.compile(r"[a-z][a-z-]*")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TYPED = re.compile(r"^gpustrap ", re.MULTILINE)


def texts(path: Path) -> Iterator[str]:
    """The texts of a file; of Python each string as a whole, with its f-string values as gaps."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        text = re.sub(r"\\\n\s*", " ", text)
        yield _FENCE.sub(lambda block: _TYPED.sub("$ gpustrap ", block[0]), text)
        return
    inside: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else GAP for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def commands(text: str) -> Iterator[str]:
    """The words after ``gpustrap`` wherever it is named."""
    return (" ".join(found["words"].split()) for found in _COMMAND.finditer(text))


def is_told(text: str, words: str) -> bool:
    """Whether a text, which may just be speaking of gpustrap, gives these words as a command."""
    verb = re.escape(words.split(maxsplit=1)[0])
    plain = rf"(?:`|Next: |^\s*)gpustrap\s+{verb}(?:`|$|\s+(?:--|{GAP}))"
    typed = rf"\$ gpustrap\s+{verb}(?![\w-])"
    return bool(_OPTION.search(words) or re.search(rf"{plain}|{typed}", text, re.MULTILINE))


def faults(text: str) -> Iterator[str]:
    """What a text names that the program does not have."""
    for words in commands(text):
        command, rest = program(), words
        while hasattr(command, "commands"):
            word = _WORD.match(rest)
            found = command.commands.get(word[0]) if word else None
            if found is None:
                break
            command, rest = found, rest[len(word[0]) if word else 0 :].lstrip()
        if hasattr(command, "commands") and rest and _WORD.match(rest) and is_told(text, words):
            yield f"gpustrap {words}: there is no such verb"
        known = options(command)
        yield from (f"gpustrap {words}: no option {o}" for o in _OPTION.findall(rest) if o not in known)


@cache
def program() -> Any:
    """The tree of commands."""
    return typer.main.get_command(app)


def options(command: Any) -> set[str]:
    """Every spelling of every option of a command."""
    return {"-h", "--help"} | {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")}


def files() -> list[Path]:
    found = [p for place in PLACES for p in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))]
    return sorted(p for p in found if p.is_file() and p.suffix in TEXTS | {".py"} and "__pycache__" not in p.parts)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_command_that_we_name_exists(path: Path) -> None:
    """Five checks told people to run gpustrap apply with an option that it does not have."""
    assert [fault for text in texts(path) for fault in faults(text)] == []


def test_commands_are_found() -> None:
    found = {c.split()[0] for path in files() for text in texts(path) for c in commands(text) if _OPTION.search(c)}
    assert {"init", "lab", "enroll", "inspect", "plan", "apply", "report", "drift", "verify"} <= found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("gpustrap apply n1 --full", "no option --full"),
        ("on the node: systemctl unmask docker.service; then gpustrap apply \0 --full", "no option --full"),
        ("Run `gpustrap applyy`, then wait", "no such verb"),
        ("gpustrap applyy --check", "no such verb"),
        ("then:\n$ gpustrap applyy n1", "no such verb"),
        ("gpustrap lab upp --site x", "no such verb"),
        ("gpustrap lab up --sight x && cd x", "no option --sight"),
        ("    gpustrap plan -x", "no option -x"),
        ("gpustrap enroll --accept-new && gpustrap plan --force", "no option --force"),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, fault: str) -> None:
    assert fault in " ".join(faults(text))


@pytest.mark.parametrize(
    "text",
    [
        "gpustrap failed inside: this is a fault",
        "gpustrap manages the node, or ssh -J hop",
        "gpustrap apply --check --diff",
        "gpustrap enroll -k --accept-new   # once: -x is no option of it",
        "gpustrap lab shell --lab demo n1",
        "(gpustrap report --html)",
        "gpustrap lab",
        "Run gpustrap plan --upgrade NODE, then gpustrap apply.",
    ],
)
def test_a_sound_text_has_no_fault(text: str) -> None:
    assert list(faults(text)) == []
