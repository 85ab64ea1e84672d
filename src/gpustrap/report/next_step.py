"""The next command as it must be typed here: a site that was named on the command line is named again."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

SITE_VARIABLE = "GPUSTRAP_SITE"
_VERBS = "enroll|inspect|plan|apply|verify|drift|remove|report|env (?:list|shell|export)"
_COMMAND = re.compile(rf"(?<![\w./-])gpustrap (?:{_VERBS})(?![\w-])(?![^;&|\n]*--site)")
# With the words up to where the command may end.
_OF_MACHINE = re.compile(
    r"(?<![\w./-])(gpustrap (?:inspect|plan|apply|verify|drift|remove))(?![\w-])((?:(?!gpustrap)[^;&|,\n()])*)"
)
_words: list[str] = []  # what every command of a site needs in this run
_here: list[str] = []  # the name of the node that this machine is, in a run with --local


def remember_site(site: Path) -> Path:
    """Note this run's site, if the next command would not find it by itself."""
    by_itself = Path(os.environ.get(SITE_VARIABLE) or ".")
    _here.clear()
    _words[:] = [] if site.resolve() == by_itself.resolve() else ["--site", str(site)]
    return site


def remember_here(name: str) -> None:
    """Note that this run is about this machine alone."""
    _here[:] = [name]


def next_step(text: str) -> str:
    """A remedy, with this run's site and --local in every command of ours that works on one."""
    text = _OF_MACHINE.sub(_local, text) if _here else text
    return _COMMAND.sub(lambda found: f"{found[0]} {shlex.join(_words)}", text) if _words else text


def _local(found: re.Match[str]) -> str:
    """The command for this machine alone, which is named nowhere else in it."""
    if "--local" in found[2]:
        return found[0]
    return f"{found[1]} --local" + re.sub(rf" {re.escape(_here[0])}(?![\w-])", "", found[2])
