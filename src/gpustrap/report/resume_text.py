"""What is shown at logins on a machine that was rebooted in the middle of its own apply. No more than 80 columns."""

from __future__ import annotations

import textwrap
from datetime import datetime
from pathlib import Path

from gpustrap.exitcodes import ExitCode

GOES = "This note goes with the next gpustrap apply --local."
WORDS = {
    ExitCode.OK: "this machine is as locked",
    ExitCode.WARNINGS: "this machine is as locked, with warnings",
    ExitCode.VERIFY_FAILED: "the roles ran, and a check failed",
    ExitCode.APPLY_FAILED: "it failed",
    ExitCode.REBOOT_NEEDED: "it needs another reboot",
    ExitCode.WAITING_FOR_PERSON: "it waits for a person at the console",
}


def under_way(now: datetime, why: str, log: str) -> str:
    """Written before the reboot; what is read if nothing ever comes after it.

    Args:
        now: UTC.
        why: What the reboot is for, a sentence without a full stop.
        log: Where the rest is told.
    """
    return _note(
        f"gpustrap rebooted this machine at {_time(now)}, because {why}. It goes on by itself and has not ended yet.",
        f"Watch it: sudo tail -f {log}",
        "If that is empty: systemctl status gpustrap-resume",
        "By hand instead: gpustrap apply --local",
    )


def ended(now: datetime, code: ExitCode, directory: Path, log: str) -> str:
    """Written when it has ended.

    Args:
        now: UTC.
        code: What it ended with.
        directory: The run's.
        log: Where the rest is told.
    """
    well = code in {ExitCode.OK, ExitCode.WARNINGS}
    outcome = WORDS.get(code, code.name.lower().replace("_", " "))
    lines = [f"gpustrap went on after the reboot and ended at {_time(now)}: {outcome} (exit code {int(code)})."]
    lines += [f"Report: {directory / 'report.md'}", f"Log: sudo less {log}"]
    return _note(*lines, GOES if well else "Next: gpustrap apply --local")


def _time(now: datetime) -> str:
    return f"{now:%H:%M} UTC on {now.day} {now:%B %Y}"


def _note(*paragraphs: str) -> str:
    wrapped = (
        textwrap.fill(text, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for text in paragraphs
    )
    return "\n".join(wrapped) + "\n"
