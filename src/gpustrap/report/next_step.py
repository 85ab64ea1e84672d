"""The next command as it must be typed here: a site that was named on the command line is named again."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

SITE_VARIABLE = "GPUSTRAP_SITE"
_COMMAND = re.compile(
    r"(?<![\w./-])gpustrap (?:enroll|inspect|plan|apply|verify|drift|report)(?![\w-])(?![^;&|\n]*--site)"
)
_words: list[str] = []  # what every command of a site needs in this run


def remember_site(site: Path) -> Path:
    """Note this run's site, if the next command would not find it by itself."""
    by_itself = Path(os.environ.get(SITE_VARIABLE) or ".")
    _words[:] = [] if site.resolve() == by_itself.resolve() else ["--site", str(site)]
    return site


def next_step(text: str) -> str:
    """A remedy, with this run's site in every command of ours that works on one."""
    return _COMMAND.sub(lambda found: f"{found[0]} {shlex.join(_words)}", text) if _words else text
