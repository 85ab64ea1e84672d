"""The documented exit codes, and which one wins when nodes end differently."""

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """What a run of ``gpustrap`` ended as. Documented in docs/exit-codes.md."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    APPLY_FAILED = 5
    STATE_UNKNOWN = 6
    DRIFTED = 10
    WARNINGS = 11
    VERIFY_FAILED = 12
    COULD_NOT_CHECK = 13
    WAITING_FOR_PERSON = 20
    REBOOT_NEEDED = 21
    INTERRUPTED = 130


# Worst first. An interrupted run says nothing about the rest; a state nobody knows is worse than a
# known failure; a failure is worse than a finding; a finding is worse than something still to be done.
SEVERITY: tuple[ExitCode, ...] = (
    ExitCode.INTERRUPTED,
    ExitCode.INTERNAL,
    ExitCode.STATE_UNKNOWN,
    ExitCode.APPLY_FAILED,
    ExitCode.VERIFY_FAILED,
    ExitCode.UNREACHABLE,
    ExitCode.USAGE,
    ExitCode.REFUSED,
    ExitCode.COULD_NOT_CHECK,
    ExitCode.WAITING_FOR_PERSON,
    ExitCode.REBOOT_NEEDED,
    ExitCode.DRIFTED,
    ExitCode.WARNINGS,
    ExitCode.OK,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The code a run over several nodes ends with: the first of `SEVERITY` that occurs, else OK."""
    return min(codes, key=SEVERITY.index, default=ExitCode.OK)
