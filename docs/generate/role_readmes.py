"""Writes roles/*/README.md from meta/argument_specs.yml; ``--check`` only says which are out of date."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
NOTE = "<!-- Made by docs/generate/role_readmes.py from meta/argument_specs.yml. Do not edit. -->"


def readme(role: Path) -> str:
    """The README of one role."""
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    lines = [f"# {role.name}", "", NOTE, "", f"{spec['short_description']}.", "", *map(plain, spec["description"]), ""]
    lines += ["| variable | type | default | what |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(spec["options"])]
    lines += ["", "`gpustrap plan` writes final values of these into `gpustrap.lock.yml`; see docs/roles.md.", ""]
    return "\n".join(lines)


def rows(options: dict[str, Any], indent: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Rows of the table, options of a dictionary below it."""
    for name, option in options.items():
        kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
        choices = option.get("choices", [])
        what = plain(option["description"])
        if choices:
            what += " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
        default = "*required*" if option.get("required") else f"`{json.dumps(option.get('default'))}`"
        yield f"{indent}`{name}`", kind, "" if indent and not option.get("required") else default, what
        yield from rows(option.get("options", {}), indent + "↳ ")


def plain(text: str) -> str:
    """Ansible's C(x) as `x`."""
    return re.sub(r"\bC\(([^)]*)\)", r"`\1`", text)


def main() -> int:
    """Write, or check, every role's README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a README is out of date")
    check = parser.parse_args().check
    stale = []
    for role in sorted(path.parent.parent for path in (ROOT / "roles").glob("*/meta/argument_specs.yml")):
        target, text = role / "README.md", readme(role)
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(target.relative_to(ROOT)))
        if not check:
            target.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stderr.write(f"{name}: {'out of date' if check else 'written'}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
