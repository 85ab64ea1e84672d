"""Every refusal and error is data: what happened, where, why, and the one next command."""

from __future__ import annotations

from dataclasses import dataclass

from gpustrap.exitcodes import ExitCode, worst


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that went wrong or was refused.

    Attributes:
        code: Stable kebab-case name (``host-key-changed``); docs and tests refer to it.
        subject: Where: ``node n1``, a file, an option.
        message: What happened, in one sentence without a trailing full stop.
        exit_code: What this problem alone would end the program with.
        evidence: The tool's own words; may have several lines, and is escaped when shown.
        remedy: The one next command or act.
    """

    code: str
    subject: str
    message: str
    exit_code: ExitCode
    evidence: str = ""
    remedy: str = ""


class GpustrapError(Exception):
    """Ends a command. Carries every problem found, so that the user reads them all at once."""

    def __init__(self, *problems: Problem) -> None:
        if not problems:
            raise ValueError("a GpustrapError needs at least one problem")
        super().__init__("; ".join(f"{p.subject}: {p.message}" for p in problems))
        self.problems = problems

    @property
    def exit_code(self) -> ExitCode:
        """The worst exit code of the problems."""
        return worst(p.exit_code for p in self.problems)
